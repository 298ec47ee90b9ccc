"""`bottleneck attach`: its options, its formats, and what it refuses."""

from __future__ import annotations

import json
import os

import pytest

from bottleneck.cli.main import run
from bottleneck.errors import ExitStatus, MeasurementError, UsageError
from bottleneck.results.json import from_json, saved_from_json, to_json
from bottleneck.watching import attach as attaching
from tests.support.watched_factory import make_watched_result


@pytest.fixture
def attached(monkeypatch):
    asked = []

    def attach(pid, seconds, progress):
        asked.append((pid, seconds))
        return make_watched_result()

    monkeypatch.setattr(attaching, "attach", attach)
    return asked


def test_it_watches_for_fifteen_seconds_and_prints_the_verdict(attached, capsys):
    assert run(["attach", "4711"]) == ExitStatus.OK
    assert attached == [(4711, 15)]
    shown = " ".join(capsys.readouterr().out.split())
    assert "INPUT-BOUND train.py --data shards" in shown
    assert "not tried" in shown
    assert "bottleneck run train.py --data shards" in shown


def test_it_writes_every_format(attached, tmp_path, capsys):
    paths = [tmp_path / name for name in ("a.json", "a.md", "a.html")]
    asked = [word for option, path in zip(("--json", "--markdown", "--html"), paths, strict=True)
             for word in (option, str(path))]  # fmt: skip
    assert run(["attach", "4711", "--seconds", "60", *asked]) == ExitStatus.OK
    assert attached == [(4711, 60)]
    assert "Wrote" in capsys.readouterr().err
    document = json.loads(paths[0].read_text())
    assert (document["schema_version"], document["kind"]) == (1, "watched")
    assert document["verdict"]["basis"] == "watched"
    assert set(document["verdict"]["input_share"]) == {"estimate", "low", "high"}
    assert set(document["lines"][0]) == {"process", "file", "line", "function", "share"}
    assert document["next"] == [["bottleneck", "run", "train.py", "--data", "shards"]]
    assert all("bottleneck run train.py --data shards" in path.read_text() for path in paths[1:])


def test_a_saved_one_can_be_read_and_shown_and_is_no_result_to_compare(tmp_path, capsys):
    made = make_watched_result()
    assert saved_from_json(to_json(made)) == made
    saved = tmp_path / "a.json"
    saved.write_text(to_json(made))
    assert run(["report", str(saved), "--format", "markdown"]) == ExitStatus.OK
    assert "waits for its data" in capsys.readouterr().out
    assert run(["compare", str(saved), str(saved)]) == run(["plan", str(saved)]) == ExitStatus.USAGE
    assert "is of a job that was watched and not diagnosed" in capsys.readouterr().err
    assert run(["report", str(saved), "--gpu-hour-price", "2"]) == ExitStatus.USAGE
    with pytest.raises(UsageError):
        from_json(to_json(made))


@pytest.mark.parametrize("words", [["abc"], ["0"], [], ["4711", "--seconds", "1"], ["4711", "4712"]])
def test_what_is_no_pid_or_no_time_is_a_slip(attached, words, capsys):
    assert run(["attach", *words]) == ExitStatus.USAGE
    assert capsys.readouterr().err.startswith("Error: ")
    assert attached == []


def test_a_place_that_cannot_be_written_is_found_before_anything_is_watched(attached, tmp_path):
    assert run(["attach", "4711", "--json", str(tmp_path / "no" / "a.json")]) == ExitStatus.USAGE
    assert attached == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("There is no process 4711.", "Find it."), ExitStatus.USAGE),
        (MeasurementError("py-spy cannot look into process 4711.", "Do this."), ExitStatus.COULD_NOT_MEASURE),
    ],
)
def test_a_failure_is_one_line_with_its_status(monkeypatch, capsys, error, status):
    def attach(*_):
        raise error

    monkeypatch.setattr(attaching, "attach", attach)
    assert run(["attach", "4711"]) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"Error: {error}\n"


def test_a_process_that_does_not_run_is_a_slip(capsys):
    assert run(["attach", "4194305"]) == ExitStatus.USAGE
    assert "There is no process 4194305" in capsys.readouterr().err


def test_a_process_of_another_user_could_not_be_measured(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 65_533)
    assert run(["attach", str(os.getpid())]) == ExitStatus.COULD_NOT_MEASURE
    assert "belongs to another user" in capsys.readouterr().err
