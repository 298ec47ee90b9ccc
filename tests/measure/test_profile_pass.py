"""What the pass of profiling makes of what py-spy gave: files, functions, and a warning with what is missing."""

import json
from types import SimpleNamespace

import pytest

from bottleneck.loader.observe import stage_frames
from bottleneck.measure.options import ProfileOptions
from bottleneck.measure.passes import profile
from bottleneck.measure.passes.pyspy import PySpyOutput

FRAMES = [
    {"name": "stage:load", "file": stage_frames.__file__, "line": 3, "col": None},
    {"name": "read", "file": "data.py", "line": 9, "col": None},
]
TIMELINE = json.dumps({"shared": {"frames": FRAMES}, "profiles": [{"samples": [[0, 1]] * 5}]})
EMPTY = json.dumps({"shared": {"frames": []}, "profiles": []})
FORBIDDEN = PySpyOutput(failure="it may not look into the process; run it as root")


@pytest.fixture
def run(monkeypatch):
    """The pass over workers with the numbers of processes that are given, and what py-spy gives in each format."""

    def start(workers, stages=(), **given):
        def record(program, pids, options, keep_busy, grace_s):
            asked.append(options)
            return dict(zip(pids, given[options.format], strict=True))

        monkeypatch.setattr(profile, "record", record)
        monkeypatch.setattr(profile, "find_py_spy", lambda: "py-spy")
        loader = SimpleNamespace(workers=workers, next_batch=None, switch_real=lambda bits: None, rest=lambda: None)
        return profile.profile(loader, ProfileOptions(rate_hz=50), 30.0, stages)

    asked = start.asked = []
    return start


def test_files_are_kept_and_functions_counted_in_the_stages_that_are_measured(run):
    found = run((11, 12), ("fetch",), speedscope=[PySpyOutput(TIMELINE)] * 2, flamegraph=[PySpyOutput("<svg/>")] * 2)
    assert found.warnings == ()
    assert (found.files["worker-1.svg"], found.files["worker-0.speedscope.json"]) == ("<svg/>", TIMELINE)
    [read] = found.evidence.functions
    assert (read.function, read.stage, read.own_share) == ("read", "fetch", 1.0)
    assert (found.evidence.samples, found.evidence.processes, found.evidence.rate_hz) == (10, 2, 50)


def test_functions_count_waiting_and_flamegraphs_only_if_asked_for(run):
    run((11,), speedscope=[PySpyOutput(TIMELINE)], flamegraph=[PySpyOutput("<svg/>")])
    assert [(options.format, options.idle) for options in run.asked] == [("speedscope", True), ("flamegraph", False)]


def test_a_worker_of_which_nothing_came_is_named_and_the_others_are_kept(run):
    found = run((11, 12), speedscope=[PySpyOutput(TIMELINE), FORBIDDEN], flamegraph=[PySpyOutput("<svg/>"), FORBIDDEN])
    assert set(found.files) == {"worker-0.svg", "worker-0.speedscope.json"}
    assert found.evidence.processes == 1
    assert ("profile-failed", f"py-spy gave no flamegraph of worker 1: {FORBIDDEN.failure}.") in found.warnings


def test_where_py_spy_may_not_look_it_is_not_tried_twice(run):
    found = run((11,), speedscope=[FORBIDDEN])
    assert (found.files, found.evidence.functions) == ({}, ())
    assert found.warnings == (("profile-failed", f"py-spy gave nothing: {FORBIDDEN.failure}."),)


def test_a_flamegraph_that_fails_costs_no_functions(run):
    found = run((11,), speedscope=[PySpyOutput(TIMELINE)], flamegraph=[PySpyOutput(failure="it wrote nothing")])
    assert [one.function for one in found.evidence.functions] == ["read"]
    assert found.warnings == (("profile-failed", "py-spy gave no flamegraph: it wrote nothing."),)


def test_samples_of_no_code_of_the_users_are_an_empty_profile(run):
    found = run((11,), speedscope=[PySpyOutput(EMPTY)], flamegraph=[PySpyOutput("<svg/>")])
    assert dict(found.warnings)["profile-empty"].startswith("The profile is empty")


def test_a_file_that_cannot_be_read_is_a_warning(run):
    found = run((11,), speedscope=[PySpyOutput("{")], flamegraph=[PySpyOutput("<svg/>")])
    assert "There is no profile (JSONDecodeError" in dict(found.warnings)["profile-failed"]
