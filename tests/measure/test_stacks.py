"""Stacks of profilers are cut down to the user's code, and files are named so that nothing private shows."""

from pathlib import Path

import pytest

from bottleneck.loader.observe import stage_frames
from bottleneck.measure.passes.stacks import RawStack, cut_stacks, join_passes, parse_collapsed, shorten
from bottleneck.results.stacks import Frame, Stack

STAGES = stage_frames.__file__
WORK = Path("/jobs/train")
LOOP = "_worker_loop (/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py:200)"
USER = "read (/jobs/train/data.py:7)"


def stage(name):
    return f"stage:{name} ({STAGES}:104)"


def cut(*lines, **options):
    return cut_stacks(parse_collapsed("\n".join(lines)), WORK, **options)


def test_a_stack_is_read_from_its_line():
    [stack] = parse_collapsed("main (a b.py:3);C::call (x) (libc.so.6);0x7f 12")
    assert stack == RawStack((("main", "a b.py", 3), ("C::call (x)", "libc.so.6", None), ("0x7f", "", None)), 12.0)


@pytest.mark.parametrize("line", ["", "12", "a (b.py:1)", "a (b.py:1) many"])
def test_lines_that_are_no_stacks_are_left_out(line):
    assert parse_collapsed(line) == []


def test_the_users_code_is_the_base():
    [stack] = cut(f"<module> (/x/main.py:1);{LOOP};{stage('load')};fetch ({STAGES}:3);{USER} 4")
    assert stack == Stack((Frame("read", "data.py", 7),), "load", 4.0, None)


def test_the_innermost_stage_counts_and_its_frame_is_cut_out():
    [stack] = cut(f"{LOOP};{stage('load')};{USER};{stage('augment')};flip (/jobs/train/aug.py:2) 1")
    assert [frame.function for frame in stack.frames] == ["read", "flip"]
    assert stack.stage == "augment"


def test_names_of_stages_are_read_back_as_they_were():
    name = "read; it all (50 %)"
    frames = []
    stage_frames.run_in_stage(name, lambda: frames.append(__import__("sys")._getframe(1).f_code.co_name), (), {})
    [stack] = cut(f"{frames[0]} ({STAGES}:1);{USER} 1")
    assert stack.stage == name


def test_code_of_which_the_stage_is_not_known_has_none():
    [stack] = cut(f"{stage('')};{USER} 1")
    assert stack.stage is None


def test_a_worker_that_waits_for_a_request_is_left_out():
    assert cut(f"{LOOP};Queue.get (/lib/python3.11/multiprocessing/queues.py:100) 9") == ()


@pytest.mark.parametrize("file", ["multiprocessing/queues.py", "multiprocessing/resource_sharer.py"])
def test_threads_of_the_loader_are_dropped(file):
    start = "Thread._bootstrap (/lib/python3.11/threading.py:1)"
    assert cut(f"{start};run (/lib/python3.11/{file}:5) 9", other_threads=True, idle=True) == ()


def test_threads_of_the_users_are_kept_while_they_compute_and_idle_ones_if_asked_for():
    line = "Thread._bootstrap (/lib/python3.11/threading.py:1);Thread.run (/lib/python3.11/threading.py:9);" + USER
    passes = join_passes(parse_collapsed(f"{line} 9"), parse_collapsed(f"{line} 2"))
    [busy] = cut_stacks(passes, WORK, other_threads=True)
    assert (busy.frames, busy.samples) == ((Frame("read", "data.py", 7),), 2.0)
    [idle] = cut_stacks(passes, WORK, other_threads=True, idle=True)
    assert (idle.samples, idle.computing) == (9.0, 2.0)
    assert cut_stacks(passes, WORK) == ()


def test_two_passes_tell_how_much_was_computing():
    line = f"{stage('load')};{USER}"
    [stack] = cut_stacks(join_passes(parse_collapsed(f"{line} 10"), parse_collapsed(f"{line} 3")), WORK)
    assert (stack.samples, stack.computing) == (10.0, 3.0)


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
