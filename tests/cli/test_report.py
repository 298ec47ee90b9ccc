"""Saved results are reported, in full or for a pull request, and compared."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

import bottleneck
from bottleneck.cli.main import run
from bottleneck.errors import UsageError
from bottleneck.results.json import save, to_json
from tests.support.results_factory import make_plannable_result, make_result
from tests.support.tuning_factory import make_tuning


def slowed(result, factor):
    """The result with every block of it longer."""

    def each(rate):
        blocks = tuple(replace(block, seconds=block.seconds * factor) for block in rate.blocks)
        return replace(rate, samples_per_s=rate.samples_per_s / factor, blocks=blocks)

    experiments = (replace(e, coupled=each(e.coupled)) if e.coupled else e for e in result.experiments)
    return replace(result, experiments=tuple(experiments))


@pytest.fixture
def files(tmp_path):
    """A base, a head that lost a tenth, and one of another machine."""
    results = {
        "base": make_result(),
        "slower": slowed(make_result(), 1.1),
        "elsewhere": make_result(environment={**make_result().environment, "torch": "2.4.0"}),
    }
    for name, result in results.items():
        save(result, tmp_path / f"{name}.json")
    return {name: str(tmp_path / f"{name}.json") for name in results}


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_two_results_become_a_comparison(files, form, capsys):
    assert run(["compare", files["base"], files["slower"], "--format", form]) == 0
    output = capsys.readouterr()
    assert "slower is slower than base: 0.91x" in output.out
    assert output.out.endswith("\n")
    assert output.err == ""


def test_a_gate_fails_only_where_the_loss_is_sure(files, capsys):
    assert run(["compare", files["base"], files["slower"], "--fail-on-regression", "5%"]) == 1
    assert "Gate failed" in capsys.readouterr().err
    assert run(["compare", files["base"], files["slower"], "--fail-on-regression", "9.05%"]) == 0  # not clearly
    assert run(["compare", files["base"], files["base"], "--fail-on-regression", "0%"]) == 0
    assert run(["compare", files["slower"], files["base"], "--fail-on-regression", "0"]) == 0  # it has won


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["base"], "Only one result was given"),
        (["base", "elsewhere"], "torch is 2.15.0 in base, 2.4.0 in elsewhere"),
        (["base", "slower", "base"], "3 results were given. Write: "),
        (["base", "slower", "--fail-on-regression", "many"], "is not a share"),
        (["base", "slower", "--fail-on-regression", "100%"], "is not a share"),
        (["base", "nowhere.json"], "nowhere.json"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(files, arguments, said, capsys):
    assert run(["compare", *(files.get(argument, argument) for argument in arguments)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert said in output.err
    assert "Traceback" not in output.err


def test_by_force_unlike_results_are_compared_and_it_is_said(files, capsys):
    assert run(["compare", files["base"], files["elsewhere"], "--force"]) == 0
    assert "Warning: The compared results differ: torch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("folders", "names", "labels"),
    [
        (["", ""], ["a.json", "b.json"], ["a", "b"]),
        (["main", "pr"], ["result.json"] * 2, ["main/result.json", "pr/result.json"]),
        (["", ""], ["a.json"] * 2, ["a", "a"]),
    ],
)
def test_results_are_called_by_what_tells_them_apart(tmp_path, capsys, folders, names, labels):
    places = [tmp_path / folder / name for folder, name in zip(folders, names, strict=True)]
    for place in places:
        place.parent.mkdir(exist_ok=True)
        place.write_text(to_json(make_result()))
    assert run(["compare", *map(str, places)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"{labels[1]} is as fast as {labels[0]}, within noise")


def test_from_python_two_diagnoses_are_compared(files):
    compared = bottleneck.compare(bottleneck.load(files["base"]), bottleneck.load(files["slower"]))
    assert compared.throughput.finding == "slower"
    assert str(compared).startswith("head is slower than base")
    assert "head is slower than base" in repr(compared)
    assert json.loads(compared.to_json())["kind"] == "comparison"
    assert compared.to_markdown().startswith("### 🔴 head is 1.10x slower (648 → 589 samples/s)\n")
    assert compared.to_html().startswith("<!DOCTYPE html>")
    with pytest.raises(UsageError, match="not from one job"):
        bottleneck.compare(bottleneck.load(files["base"]), bottleneck.load(files["elsewhere"]))


def test_files_beside_the_result_are_linked(tmp_path, files, capsys):
    (tmp_path / "flames of head").mkdir()
    for name in ("report.html", "flames of head/worker-0.svg", "flames of head/worker-1.svg", "notes.txt"):
        (tmp_path / name).write_text("x")
    url = "https://example.org/runs/42/"
    assert run(["report", files["slower"], "--format", "markdown", "--link-prefix", url]) == 0
    links = capsys.readouterr().out.splitlines()[-1]
    assert links == (
        "[Report with charts](https://example.org/runs/42/report.html) · "
        "[Flamegraph of a worker](https://example.org/runs/42/flames%20of%20head/worker-0.svg)"
    )


@pytest.mark.parametrize("url", ["example.org", "javascript:alert(1)", "https://x/)<img>", "file:///etc", "https://"])
def test_what_is_no_address_is_refused(files, url, capsys):
    assert run(["report", files["slower"], "--format", "markdown", "--link-prefix", url]) == 2
    assert "is not an address" in capsys.readouterr().err


def test_the_summary_of_a_step_is_appended_to(tmp_path, files, monkeypatch, capsys):
    summary = tmp_path / "summary.md"
    summary.write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert run(["report", files["slower"], "--github-summary"]) == 0
    assert summary.read_text().startswith("# before\n### 🔴 ImageFolder waits")
    assert capsys.readouterr().out.startswith("INPUT-BOUND")  # the text report, as ever


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "result.json"
    save(make_plannable_result(), path)
    return path


@pytest.mark.parametrize("arguments", [["report"], ["plan"]])
def test_it_needs_no_torch(arguments, saved):
    code = (
        "import sys; from bottleneck.cli.main import run; status = run(sys.argv[1:]);"
        "print(status, 'torch' in sys.modules, file=sys.stderr)"
    )
    arguments = [sys.executable, "-c", code, *arguments, str(saved), "--format", "markdown"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "0 False\n"


def test_into_a_file(saved, tmp_path, capsys):
    target = tmp_path / "report.md"
    assert run(["report", str(saved), "--format", "markdown", "-o", str(target)]) == 0
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"Wrote {target}\n")
    assert "augment" in target.read_text()


def test_all_tables_are_there_when_asked_for(saved, tmp_path, capsys):
    assert run(["report", str(saved)]) == 0
    assert "cached at" not in capsys.readouterr().out
    assert run(["report", str(saved), "--verbose"]) == 0
    assert "cached at" in capsys.readouterr().out
    assert run(["report", str(saved), "--verbose", "-o", str(tmp_path / "report.txt")]) == 0
    assert "cached at" in (tmp_path / "report.txt").read_text(encoding="utf-8")


def test_a_tuning_is_reported_as_a_result_is(tmp_path, monkeypatch, capsys):
    saved, summary = tmp_path / "tuning.json", tmp_path / "summary.md"
    saved.write_text(to_json(make_tuning()), encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert run(["report", str(saved), "--verbose", "--github-summary"]) == 0
    assert "promised" in capsys.readouterr().out
    assert summary.read_text(encoding="utf-8").startswith("### 🟢 train.py:build is 2.6x faster")
    assert run(["report", str(saved), "--gpu-hour-price", "2"]) == 2
    assert "--gpu-hour-price is for the result of one diagnosis" in capsys.readouterr().err
