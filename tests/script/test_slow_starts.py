"""Planted slow starts under `bottleneck run`: the seconds are those that the script itself has recorded."""

import json

import pytest

from tests.script.test_run import SCRIPTS, run

pytestmark = pytest.mark.integration


def started(tmp_path, *how, budget="20s"):
    """Return the result on starting up, the script's own marks, and the advice."""
    done, result = run(tmp_path, SCRIPTS / "slow_start.py", *how, options=("--budget", budget))
    assert done.returncode == 0, done.stderr
    starting, marks = result["evidence"]["starting"], json.loads((tmp_path / "marks.json").read_text())
    parts = {part["name"]: part["seconds"] for part in starting["parts"]}
    return starting, parts, marks, {item["id"]: item for item in result["advice"]}


def nearly(seconds):
    """Within a tenth, and what a busy machine adds."""
    return pytest.approx(seconds, rel=0.1, abs=0.2)


def test_workers_that_are_spawned_import_again_what_is_not_guarded(tmp_path):
    starting, parts, marks, advice = started(tmp_path, "spawn", "unguarded", budget="90s")
    (line,) = [line for line in starting["lines"] if "import slow_import" in line["code"]]
    assert line["again"]
    assert line["seconds"] == nearly(marks["imported_s"] - marks["began_s"])
    workers_s = parts["imports again in workers"] + parts.get("sending the dataset to workers", 0.0)
    assert workers_s + parts["first batch"] == nearly(marks["first_batch_s"] - marks["starting_s"])
    assert starting["bare_worker_s"] > 2.0
    assert advice["slow-start"]["evidence"]["start_method"] == "spawn"


def test_a_guarded_import_and_a_dataset_that_lists_files_are_of_the_main_process(tmp_path):
    starting, parts, marks, advice = started(tmp_path, "fork", "guarded", "lists")
    assert parts["making the dataset"] == nearly(marks["made_s"] - marks["making_s"])
    assert parts["imports"] > 2.0
    again = {line["part"]: line["again"] for line in starting["lines"]}
    assert again["making the dataset"] is False
    assert not any(line["again"] for line in starting["lines"])
    assert starting["bare_worker_s"] is None
    assert "slow-start" in advice


def test_a_large_pickle_is_told_from_what_workers_import_again(tmp_path):
    starting, parts, marks, _ = started(tmp_path, "spawn", "large", budget="90s")
    assert starting["full_worker_s"] > starting["bare_worker_s"] + 0.3
    sent_s = parts["sending the dataset to workers"]
    assert sent_s > 0.3
    whole_s = sent_s + parts["imports again in workers"] + parts["first batch"]
    assert whole_s == nearly(marks["first_batch_s"] - marks["starting_s"])
