import json
import subprocess
import sys
from dataclasses import replace

import pytest

import bottleneck
from bottleneck.cli.compare import short_labels
from bottleneck.cli.main import run
from bottleneck.errors import UsageError
from bottleneck.results.json import save
from tests.support.results_factory import make_result


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


def test_its_json_has_the_numbers(files, capsys):
    run(["compare", files["base"], files["slower"], "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert (document["schema_version"], document["kind"]) == (1, "comparison")
    raw = next(change for change in document["experiments"] if change["name"] == "raw")
    assert raw["finding"] == "slower"
    assert raw["speedup"]["estimate"] == pytest.approx(1 / 1.1)


def test_a_gate_fails_only_where_the_loss_is_sure(files, capsys):
    assert run(["compare", files["base"], files["slower"], "--fail-on-regression", "5%"]) == 1
    assert "Gate failed" in capsys.readouterr().err
    assert run(["compare", files["base"], files["slower"], "--fail-on-regression", "9.05%"]) == 0  # not surely
    assert run(["compare", files["base"], files["base"], "--fail-on-regression", "0%"]) == 0
    assert run(["compare", files["slower"], files["base"], "--fail-on-regression", "0"]) == 0  # it has won


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["base"], "Only one result was given"),
        (["base", "elsewhere"], "torch is 2.15.0 in base, 2.4.0 in elsewhere"),
        (["base", "slower", "base"], "3 results were given. Compare two at a time"),
        (["base", "slower", "--fail-on-regression", "many"], "is not a loss"),
        (["base", "slower", "--fail-on-regression", "100%"], "is not a loss"),
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
    assert "Warning: Unlike results were compared: torch" in capsys.readouterr().out


def test_into_a_file(files, tmp_path, capsys):
    target = tmp_path / "compared.md"
    assert run(["compare", files["base"], files["slower"], "--format", "markdown", "-o", str(target)]) == 0
    assert capsys.readouterr().err == f"Wrote {target}\n"
    assert target.read_text().startswith("### 🔴 slower is 1.10x slower (648 → 589 samples/s)\n")


def test_it_needs_no_torch(files):
    code = (
        "import sys; from bottleneck.cli.main import run; status = run(sys.argv[1:]);"
        "print(status, 'torch' in sys.modules, file=sys.stderr)"
    )
    arguments = [sys.executable, "-c", code, "compare", files["base"], files["slower"]]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "0 False\n"


def test_from_python_two_diagnoses_are_compared(files):
    compared = bottleneck.compare(bottleneck.load(files["base"]), bottleneck.load(files["slower"]))
    assert compared.throughput.finding == "slower"
    assert str(compared).startswith("head is slower than base")
    assert "head is slower than base" in repr(compared)
    assert json.loads(compared.to_json())["kind"] == "comparison"
    assert compared.to_markdown().startswith("### 🔴 head is 1.10x slower (648 → 589 samples/s)\n")
    assert compared.to_html().startswith("<!DOCTYPE html>")
    with pytest.raises(UsageError, match="unlike"):
        bottleneck.compare(bottleneck.load(files["base"]), bottleneck.load(files["elsewhere"]))


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["a.json", "b.json"], ["a", "b"]),
        (["main/result.json", "pr/result.json"], ["main/result", "pr/result"]),
        (["a.json", "a.json"], ["a (1)", "a (2)"]),
    ],
)
def test_labels_are_as_short_as_tells_them_apart(paths, labels):
    assert short_labels(paths) == labels
