"""From py-spy's stacks to functions: cut down to the user's code, by stage, in files that show nothing private."""

import json
from collections import Counter
from pathlib import Path

import pytest

from bottleneck.loader.observe import stage_frames
from bottleneck.measure.passes.stacks import (
    MOST_FUNCTIONS,
    count_own_samples,
    find_functions,
    read_speedscope,
    shorten,
)

STAGES = stage_frames.__file__
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
    stage_frames.run_in_stage(name, lambda: frames.append(__import__("sys")._getframe(1).f_code.co_name), (), {})
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
