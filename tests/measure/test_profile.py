"""From what py-spy leaves to files, functions and warnings."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from bottleneck.loader import observe as frames_module
from bottleneck.measure import profile
from bottleneck.measure.options import ProfileOptions
from bottleneck.measure.profile import (
    MOST_FUNCTIONS,
    count_own_samples,
    find_functions,
    read_speedscope,
    shorten,
)
from bottleneck.measure.pyspy import PySpyOutput

FRAMES = [
    {"name": "stage:load", "file": frames_module.__file__, "line": 3, "col": None},
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


STAGES = frames_module.__file__
WORK = Path("/jobs/train")
LOOP = ("_worker_loop", "/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", 200)
THREAD = (("Thread._bootstrap", "/lib/python3.11/threading.py", 1), ("Thread.run", "/lib/python3.11/threading.py", 9))
GET, READ, FLIP = (("get", "/jobs/train/data.py", 1), ("read", "/jobs/train/data.py", 9), ("flip", "/x/aug.py", 4))


def stage(name):
    return f"stage:{name}", STAGES, 104


def functions(*processes, stages=(), other_threads=False):
    """Name, stage and share of each function; a process maps stacks to their samples."""
    own = count_own_samples(map(Counter, processes), other_threads=other_threads)
    return [(one.function, one.stage, one.own_share) for one in find_functions(own, WORK, stages)]


def test_stacks_are_read_from_a_file_for_speedscope():
    frames = [
        {"name": "main", "file": "a b.py", "line": 3, "col": None},
        {"name": "C::call (x);", "file": "libc.so.6", "line": 0, "col": None},
        {"name": "0x7f", "file": None, "line": None, "col": None},
    ]
    profiles = [{"samples": [[0, 1], [0], [0, 1]]}, {"samples": [[0, 2]]}]
    found = read_speedscope(json.dumps({"shared": {"frames": frames}, "profiles": profiles}))
    main, call = ("main", "a b.py", 3), ("C::call (x);", "libc.so.6", None)
    assert found == {(main, call): 2, (main,): 1, (main, ("0x7f", "", None)): 1}


def test_own_time_is_that_of_the_innermost_function_over_all_processes():
    one = {(LOOP, stage("load"), GET, READ): 30, (LOOP, stage("load"), GET): 10}
    assert functions(one, {(LOOP, stage("load"), READ): 60}) == [("read", "load", 0.9), ("get", "load", 0.1)]


def test_a_function_that_works_for_two_stages_has_two_rows():
    found = {(stage("load"), READ): 3, (stage("load"), GET, stage("augment"), READ): 1}
    assert functions(found) == [("read", "load", 0.75), ("read", "augment", 0.25)]


def test_our_frames_inside_a_stage_are_nobodys_own_time():
    assert functions({(stage("load"), READ, ("run_in_stage", STAGES, 3)): 5}) == [("read", "load", 1.0)]
    assert functions({(stage("load"), ("_run", STAGES, 3)): 5}) == []


def test_names_of_stages_are_read_back_as_they_were():
    name, frames = "read; it all (50 %)", []
    frames_module.run_in_stage(name, lambda: frames.append(__import__("sys")._getframe(1).f_code.co_name), (), {})
    assert functions({((frames[0], STAGES, 1), READ): 1}) == [("read", name, 1.0)]


def test_code_of_which_the_stage_is_not_known_has_none():
    assert functions({(stage(""), READ): 1}) == [("read", None, 1.0)]


def test_stages_that_are_not_measured_apart_are_those_of_fetch():
    found = {(stage("load"), READ): 20, (stage("augment"), READ): 10, (stage("collate"), FLIP): 10}
    assert functions(found, stages=("compute", "collate", "fetch")) == [
        ("read", "fetch", 0.75), ("flip", "collate", 0.25),
    ]  # fmt: skip


def test_a_worker_that_waits_for_a_request_is_left_out():
    assert functions({(LOOP, ("Queue.get", "/lib/python3.11/multiprocessing/queues.py", 100)): 9}) == []


@pytest.mark.parametrize("file", ["multiprocessing/queues.py", "multiprocessing/resource_sharer.py"])
def test_threads_of_the_loader_are_dropped(file):
    assert functions({(*THREAD, ("run", f"/lib/python3.11/{file}", 5)): 9}, other_threads=True) == []


@pytest.mark.parametrize("file", ["threading.py", "queue.py", "concurrent/futures/thread.py"])
def test_threads_of_the_users_count_unless_they_wait_for_something_to_do(file):
    found = {(*THREAD, READ): 4, (*THREAD, READ, ("wait", f"/lib/python3.11/{file}", 5)): 90}
    assert functions(found, other_threads=True) == [("read", None, 1.0)]
    assert functions(found) == []


def test_native_code_without_a_name_counts_for_its_caller():
    nameless = ("0x7fc1102a3f16", "/lib/libc.so.6", None)
    assert functions({(stage("load"), GET, READ, nameless): 20}) == [("read", "load", 1.0)]


def test_long_tables_end():
    found = functions({(stage("load"), (f"f{n}", "a.py", n)): 1 + n for n in range(200)})
    assert len(found) == MOST_FUNCTIONS
    assert found[0][0] == "f199"


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/jobs/train/sub/data.py", "sub/data.py"),
        ("/home/ann/env/lib/python3.11/site-packages/PIL/Image.py", "PIL/Image.py"),
        ("/usr/lib/python3.11/random.py", "random.py"),
        ("/home/ann/code/lib/data.py", "…/code/lib/data.py"),
        ("/home/ann/data.py", "~/data.py"),
        ("/Users/ann/code/data.py", "~/code/data.py"),
        ("/private/place/data.py", "~/place/data.py"),
        ("/opt/data.py", "/opt/data.py"),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "libc.so.6"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("", ""),
    ],
)
def test_no_home_directory_shows(file, shown, monkeypatch):
    monkeypatch.setenv("HOME", "/private")
    assert shorten(file, WORK) == shown
