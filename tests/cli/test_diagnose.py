"""The command without the measuring, which has separate tests: its results are given here; and the progress line."""

import io
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from bottleneck.cli.main import run
from bottleneck.cli.measure import source_of
from bottleneck.cli.output import describe_update, open_progress
from bottleneck.errors import MeasurementError
from bottleneck.measure.options import ProgressUpdate
from bottleneck.results.records import Interval
from tests.support.results_factory import make_empty_result, make_interrupted_result, make_result


def test_the_report_is_on_standard_output_and_what_the_job_prints_is_not(asked, capfd):
    assert run(["diagnose", "job.py:build"]) == 0
    output = capfd.readouterr()
    assert "augment" in output.out
    assert "hello" not in output.out
    assert "hello from the module" in output.err
    assert "hello from a child" in output.err


def test_options_reach_the_measuring(asked):
    arguments = ["--budget", "1m30s", "--quick", "--seed", "7", "--device", "cpu", "--set", "batch_size=4"]
    arguments += ["--cache-bytes", "8GiB"]
    assert run(["diagnose", "job:build", *arguments, "--set", "shuffle=true"]) == 0
    [(pipeline, options, _)] = asked.calls
    assert (options.budget_s, options.quick, options.seed) == (90.0, True, 7)
    assert options.cache_budget_bytes == 8 << 30
    assert not options.restore  # the process ends
    assert (pipeline.device, dict(pipeline.loader_args)) == ("cpu", {"batch_size": 4, "shuffle": True})


def test_a_report_on_standard_output_is_alone_there(asked, tmp_path, capsys):
    assert run(["diagnose", "job:build", "--json", "-", "--markdown", "r.md"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["schema_version"] == 1
    assert output.err.endswith("Wrote r.md\n")
    assert "augment" in (tmp_path / "r.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--json", "-", "--markdown", "-"], "--json and --markdown both go to standard output"),
        (["--json", "x", "--markdown", "./x"], "--json and --markdown both go to ./x"),
        (["--json", "no/such/folder/r.json"], "Cannot write 'no/such/folder/r.json': no such file or directory"),
        (["--json", "."], "Cannot write '.': it is the name of a folder"),
        (["--markdown", "./job.py"], "./job.py is an input file, which would be overwritten"),
        (["--budget", "soon"], "'soon' is not a duration"),
        (["--cache-bytes", "8 giga"], "'8 giga' is not an amount of memory. Write for example 8GiB or 500MB"),
        (["--fail-under", "2"], "'2' is not a share between 0 and 1"),
        (["--gpu-hour-price", "0"], "'0' is not a price above zero"),
        (["--seed", str(2**70)], "--seed"),
        (["--set", "num_wrokers=3"], "Did you mean 'num_workers'?"),
    ],
)
def test_wrong_options_are_refused_before_the_job_is_loaded(asked, arguments, words, capsys):
    assert run(["diagnose", "job.py:build", *arguments]) == 2
    output = capsys.readouterr()
    assert words in output.err
    assert output.err.startswith("Error: ")
    assert output.err.count("\n") == 1
    assert asked.calls == []


def test_a_torch_that_does_not_work_is_told(asked, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run(["diagnose", "job:build"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("Error: PyTorch cannot be imported: ")
    assert "pip install torch torchvision" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("failure", "status", "message"),
    [(MeasurementError("Worker 1 died."), 3, "Error: Worker 1 died."), (KeyboardInterrupt(), 130, "Interrupted.")],
)
def test_what_was_measured_until_a_failure_is_kept(asked, tmp_path, failure, status, message, capsys):
    asked.answer(make_interrupted_result(), failure)
    assert run(["diagnose", "job:build", "--json", "r.json"]) == status
    output = capsys.readouterr()
    assert output.err.rstrip().splitlines()[-1] == message
    assert json.loads((tmp_path / "r.json").read_text())["experiments"]
    assert output.out


def test_the_json_names_the_command_to_run_next(asked, capsys):
    assert run(["diagnose", "job.py:build", "--set", "num_workers=1", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    again = ["bottleneck", "diagnose", "--json", "-", "job.py:build", "--set", "num_workers=1"]
    assert again in found["next"]
    assert all(run([*command[1:], "--help"]) == 0 for command in found["next"])  # each is one that is understood


@pytest.mark.parametrize(("share", "status"), [("0.9", 1), ("90%", 1), ("0.38", 0), ("0.1", 0)])
def test_the_gate(asked, share, status, capsys):
    result = asked.attempt.diagnosis
    assert result.verdict.efficiency.low < 0.38 < result.verdict.efficiency.high
    assert run(["diagnose", "job:build", "--fail-under", share]) == status
    assert ("Gate failed" in capsys.readouterr().err) == bool(status)


def test_the_gate_goes_by_the_whole_epoch_where_that_is_lower(asked, capsys):
    # Guards: a job that lost a third of its time to starting workers passed the gate with 99 %.
    steady, whole = Interval(0.99, 0.98, 1.0), Interval(0.67, 0.66, 0.68)
    verdict = replace(make_result().verdict, efficiency=steady, epoch_efficiency=whole, judged_by="epoch_efficiency")
    asked.answer(make_result(verdict=verdict))
    assert run(["diagnose", "job:build", "--fail-under", "0.9"]) == 1
    assert "the efficiency over a whole epoch is 67.0 % and at most 68.0 %" in capsys.readouterr().err
    long = replace(verdict, judged_by="efficiency")
    asked.answer(make_result(verdict=long))
    assert run(["diagnose", "job:build", "--fail-under", "0.9"]) == 0


def test_the_price_of_a_gpu_hour_tells_what_is_lost(asked, tmp_path, capsys):
    assert run(["diagnose", "job:build", "--gpu-hour-price", "2.5", "--json", "r.json"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "Of the 2.5 that a GPU hour costs, 1.55 (1.50–1.59) is lost in each hour of training." in words
    evidence = json.loads((tmp_path / "r.json").read_text())["evidence"]
    assert evidence["gpu_hour_price"] == 2.5
    assert evidence["lost_per_gpu_hour"]["estimate"] == pytest.approx(2.5 * 0.619)


def test_a_device_that_is_not_there_is_refused_in_words_of_the_command_line(asked, capsys):
    assert run(["diagnose", "job:build", "--device", "cuda:99"]) == 2
    shown = capsys.readouterr().err
    assert "Error: --device cuda:99 does not exist" in shown
    assert "Write --device" in shown
    assert "device=" not in shown


def test_a_gate_that_cannot_be_judged_does_not_fail(asked, capsys):
    asked.answer(make_empty_result())
    assert run(["diagnose", "job:build", "--fail-under", "0.9"]) == 0
    assert "cannot be judged" in capsys.readouterr().err


def git(*arguments):
    own = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", *own, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_a_commit_says_whether_files_differ_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert source_of("train.py") == {"target": "train.py"}
    (tmp_path / "train.py").write_text("a = 1\n")
    git("init", "-q")
    assert "commit" not in source_of("train.py")  # nothing is committed
    git("add", "-A")
    git("commit", "-q", "-m", "one")
    commit = git("rev-parse", "--short", "HEAD")
    assert source_of("train.py")["commit"] == commit
    (tmp_path / "train.py").write_text("a = 2\n")
    assert source_of("train.py")["commit"] == f"{commit}+"
    monkeypatch.setenv("PATH", "")
    assert "commit" not in source_of("train.py")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_line_keeps_its_places_and_never_goes_back(monkeypatch):
    # Guards: a bar that shrank for long texts, and a share that fell when another round was added.
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with open_progress() as progress:
        for elapsed_s, experiment, rounds in ((30, "raw", 6), (31, "e" * 90, 60)):
            progress(ProgressUpdate("measuring", experiment, round=4, rounds=rounds, elapsed_s=elapsed_s, budget_s=90))
    shown = [line for line in re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", terminal.getvalue()) if " %  " in line]
    assert len({line.index("%") for line in shown}) == 1
    assert {re.search(r"(\d+) %", line)[1] for line in shown} == {"50"}
    assert max(map(len, shown)) <= 80


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (ProgressUpdate("starting workers"), " 50 %                    starting workers"),
        (ProgressUpdate("trying threads=1", "1.1x so far"), " 50 %                    trying threads=1: 1.1x so far"),
        (
            ProgressUpdate("measuring", "before_collate (drained)", round=2, rounds=6, elapsed_s=10, budget_s=110),
            " 50 %  about 100 s left  measuring, round 2 of 6",
        ),
        (
            ProgressUpdate(
                "measuring",
                state="input_bound",
                bottleneck="augment",
                gain=2.36,
                chance=0.93,
                elapsed_s=12,
                budget_s=60,
            ),
            " 50 %  about 48 s left   augment, 2.4x so far; 93 % sure",
        ),
        (
            ProgressUpdate("measuring", state="input_bound", bottleneck="load", chance=1.0, elapsed_s=70, budget_s=60),
            " 50 %  nearly done       load so far; 99 % sure",
        ),
        (ProgressUpdate("measuring", state="input_bound"), " 50 %                    the input so far"),
        (ProgressUpdate("measuring", state="device_bound"), " 50 %                    the train step so far"),
    ],
)
def test_an_update_in_words(update, text):
    assert describe_update(update, 0.5) == text


def test_the_longest_update_fits_on_a_line():
    # Guards: `99 in 10`, the end of which was cut.
    update = ProgressUpdate("measuring", state="input_bound", chance=1.0, elapsed_s=5, budget_s=170)
    assert len(describe_update(update, 0.5)) <= 80 - 16 - 2


def test_a_log_is_told_once_how_long_the_measuring_takes(capsys):
    with open_progress() as progress:
        for elapsed_s in (5, 6):
            progress(ProgressUpdate("measuring", elapsed_s=elapsed_s, budget_s=60))
    assert capsys.readouterr().err == "Measuring, for about 55 s.\n"


def test_a_log_is_told_if_measuring_takes_longer_than_was_said(capsys):
    with open_progress() as progress:
        for elapsed_s, budget_s in ((0.0, 45.0), (5.0, 46.0), (9.0, 105.0), (60.0, 110.0)):
            progress(ProgressUpdate("round", elapsed_s=elapsed_s, budget_s=budget_s))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "Measuring, for about 45 s."
    assert second == "Measuring, for about 96 s more, because the steps are slow."
