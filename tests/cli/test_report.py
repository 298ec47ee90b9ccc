import io
import json
import subprocess
import sys

import pytest

from bottleneck.cli.main import run
from bottleneck.reports.answer import headline
from bottleneck.results.json import load, save, to_json
from tests.support.results_factory import make_result
from tests.support.tuning_factory import make_tuning


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "result.json"
    save(make_result(), path)
    return path


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_a_saved_result_becomes_a_report(saved, form, capsys):
    assert run(["report", str(saved), "--format", form]) == 0
    output = capsys.readouterr()
    assert "augment" in output.out
    assert output.out.endswith("\n")
    assert output.err == ""


def test_json_in_json_out(saved, capsys):
    run(["report", str(saved), "--format", "json"])
    assert json.loads(capsys.readouterr().out) == json.loads(saved.read_text())


def test_it_needs_no_torch(saved):
    code = (
        "import sys; from bottleneck.cli.main import run; status = run(sys.argv[1:]);"
        "print(status, 'torch' in sys.modules, file=sys.stderr)"
    )
    arguments = [sys.executable, "-c", code, "report", str(saved), "--format", "markdown"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "0 False\n"


def test_into_a_file(saved, tmp_path, capsys):
    target = tmp_path / "report.md"
    assert run(["report", str(saved), "--format", "markdown", "-o", str(target)]) == 0
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"Wrote {target}\n")
    assert "augment" in target.read_text()


def test_from_standard_input(saved, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(saved.read_bytes())))
    assert run(["report", "-"]) == 0
    assert headline(load(saved))[0] in capsys.readouterr().out


def test_all_tables_are_there_when_asked_for(saved, tmp_path, capsys):
    assert run(["report", str(saved)]) == 0
    assert "cached at" not in capsys.readouterr().out
    assert run(["report", str(saved), "--verbose"]) == 0
    assert "cached at" in capsys.readouterr().out
    assert run(["report", str(saved), "--verbose", "-o", str(tmp_path / "report.txt")]) == 0
    assert "cached at" in (tmp_path / "report.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_a_price_of_a_gpu_hour_is_told_in_every_report(saved, form, capsys):
    assert run(["report", str(saved), "--format", form, "--gpu-hour-price", "30"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "Of the 30 that a GPU hour costs, 18.57 (18.00–19.14) is lost in each hour of training." in words


def test_a_price_is_kept_in_json_and_another_one_replaces_it(saved, capsys):
    run(["report", str(saved), "--format", "json", "--gpu-hour-price", "30"])
    saved.write_text(capsys.readouterr().out)
    run(["report", str(saved)])
    assert "Of the 30 that" in capsys.readouterr().out
    run(["report", str(saved), "--gpu-hour-price", "1"])
    assert "Of the 1 that a GPU hour costs, 0.62 (" in capsys.readouterr().out
    assert run(["report", str(saved), "--gpu-hour-price", "free"]) == 2


def test_a_broken_result_is_refused(tmp_path, capsys):
    path = tmp_path / "broken.json"
    path.write_text('{"schema_version": 99}')
    assert run(["report", str(path)]) == 2
    assert "schema_version 99" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["report"], ["report", "--format", "html"], ["compare", "other.json"]])
def test_a_result_that_is_read_is_not_replaced(saved, monkeypatch, command, capsys):
    monkeypatch.chdir(saved.parent)
    before = saved.read_bytes()
    (saved.parent / "other.json").write_bytes(before)
    assert run([*command, str(saved), "-o", f"./{saved.name}"]) == 2
    assert "is a result that is read, which would be lost" in capsys.readouterr().err
    assert saved.read_bytes() == before


def test_an_output_that_cannot_be_written_is_found_first(saved, tmp_path, capsys):
    assert run(["report", str(saved), "-o", str(tmp_path)]) == 2
    assert "it is a folder" in capsys.readouterr().err


def test_the_option_for_a_card_is_gone_and_says_so(saved, tmp_path, capsys):
    assert run(["report", str(saved), "--card", str(tmp_path / "card.svg")]) == 2
    assert "Error: --card is gone: the page that --html writes begins with the answer." in capsys.readouterr().err
    assert run(["report", str(saved), "--cart", "x"]) == 2
    assert "No such option" in capsys.readouterr().err


def test_a_tuning_is_reported_as_a_result_is(tmp_path, monkeypatch, capsys):
    saved, summary = tmp_path / "tuning.json", tmp_path / "summary.md"
    saved.write_text(to_json(make_tuning()), encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert run(["report", str(saved), "--verbose", "--github-summary"]) == 0
    assert "promised" in capsys.readouterr().out
    assert summary.read_text(encoding="utf-8").startswith("### 🟢 train.py:build is 2.6x faster")
    assert run(["report", str(saved), "--gpu-hour-price", "2"]) == 2
    assert "--gpu-hour-price is for the result of one diagnosis" in capsys.readouterr().err
