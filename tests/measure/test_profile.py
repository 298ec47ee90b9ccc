"""py-spy runs on processes and is ended in time; what it leaves becomes files, functions, warnings and remedies."""

import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bottleneck.loader.observing import observe as frames_module
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import ProfileOptions
from bottleneck.measure.passes import profile, pyspy
from bottleneck.measure.passes.profile import count_own_samples, find_functions, read_speedscope, shorten
from bottleneck.measure.passes.pyspy import PySpyOptions, PySpyOutput, record, remedy_for_permission
from bottleneck.results.records import Stage, Warning

FRAMES = [
    {"name": "stage:load", "file": frames_module.__file__, "line": 3, "col": None},
    {"name": "read", "file": "data.py", "line": 9, "col": None},
]
TIMELINE = json.dumps({"shared": {"frames": FRAMES}, "profiles": [{"samples": [[0, 1]] * 5}]})
FORBIDDEN = PySpyOutput(failure="it may not look into the process; run it as root")


@pytest.fixture
def run(monkeypatch):
    """The ledger after the pass over workers with some process numbers, and what py-spy gives in each format."""

    def start(workers, stages=(), **given):
        def record(program, pids, options, keep_busy, grace_s):
            asked.append(options)
            return dict(zip(pids, given[options.format], strict=True))

        monkeypatch.setattr(profile, "record", record)
        monkeypatch.setattr(profile, "find_py_spy", lambda: "py-spy")
        loader = SimpleNamespace(workers=workers, next_batch=None, switch_real=lambda bits: None, rest=lambda: None)
        ledger = Ledger({}, {})
        ledger.ladder = replace(ledger.ladder, spans=tuple(Stage.between(stage, None, stage) for stage in stages))
        profile.profile(loader, ProfileOptions(rate_hz=50), 30.0, ledger)
        return ledger

    asked = start.asked = []
    return start


def test_files_are_kept_and_functions_counted_in_the_stages_that_are_measured(run):
    found = run((11, 12), ("fetch",), speedscope=[PySpyOutput(TIMELINE)] * 2, flamegraph=[PySpyOutput("<svg/>")] * 2)
    files, seen = found.profile_files, found.evidence.profile
    assert found.measurement().warnings == ()
    assert (files["worker-1.svg"], files["worker-0.speedscope.json"]) == ("<svg/>", TIMELINE)
    [read] = seen.functions
    assert (read.function, read.stage, read.own_share) == ("read", "fetch", 1.0)
    assert (seen.samples, seen.processes, seen.rate_hz) == (10, 2, 50)


def test_a_worker_of_which_nothing_came_is_named_and_the_others_are_kept(run):
    found = run((11, 12), speedscope=[PySpyOutput(TIMELINE), FORBIDDEN], flamegraph=[PySpyOutput("<svg/>"), FORBIDDEN])
    assert set(found.profile_files) == {"worker-0.svg", "worker-0.speedscope.json"}
    assert found.evidence.profile.processes == 1
    message = f"py-spy returned no flamegraph of worker 1: {FORBIDDEN.failure}."
    assert Warning("profile-failed", message) in found.measurement().warnings


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


def test_our_frames_inside_a_stage_are_nobodys_own_time():
    assert functions({(stage("load"), READ, ("_run_in", STAGES, 3)): 5}) == [("read", "load", 1.0)]
    assert functions({(stage("load"), ("_run", STAGES, 3)): 5}) == []


def test_names_of_stages_are_read_back_as_they_were():
    name, frames = "read; it all (50 %)", []
    frames_module.runner(name)(lambda: frames.append(__import__("sys")._getframe(1).f_code.co_name), (), {})
    assert functions({((frames[0], STAGES, 1), READ): 1}) == [("read", name, 1.0)]


def test_stages_that_are_not_measured_apart_are_those_of_fetch():
    found = {(stage("load"), READ): 20, (stage("augment"), READ): 10, (stage("collate"), FLIP): 10}
    assert functions(found, stages=("compute", "collate", "fetch")) == [
        ("read", "fetch", 0.75), ("flip", "collate", 0.25),
    ]  # fmt: skip


@pytest.mark.parametrize("file", ["threading.py", "queue.py", "concurrent/futures/thread.py"])
def test_threads_of_the_users_count_unless_they_wait_for_something_to_do(file):
    found = {(*THREAD, READ): 4, (*THREAD, READ, ("wait", f"/lib/python3.11/{file}", 5)): 90}
    assert functions(found, other_threads=True) == [("read", None, 1.0)]
    assert functions(found) == []


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/jobs/train/sub/data.py", "sub/data.py"),
        ("/home/ann/env/lib/python3.11/site-packages/PIL/Image.py", "PIL/Image.py"),
        ("/home/ann/code/lib/data.py", "…/code/lib/data.py"),
        ("/Users/ann/code/data.py", "~/code/data.py"),
        ("/private/place/data.py", "~/place/data.py"),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "libc.so.6"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
    ],
)
def test_no_home_directory_shows(file, shown, monkeypatch):
    monkeypatch.setenv("HOME", "/private")
    assert shorten(file, WORK) == shown


PERMISSION = "Error: Permission Denied: Try running again with elevated permissions by going 'sudo env ...'"


@pytest.fixture
def fake(tmp_path):
    """Makes a program that stands in for py-spy."""

    def make(script):
        program = tmp_path / "py-spy"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return str(program)

    return make


@pytest.fixture
def victim():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process.pid
    process.kill()
    process.wait()


def record_one(program, pid, seconds=1, grace_s=3.0, **options):
    return record(
        program, (pid,), PySpyOptions("flamegraph", seconds, 100, **options), lambda: time.sleep(0.01), grace_s
    )[pid]


def test_options_reach_it(fake, victim, tmp_path):
    program = fake(f'echo "$@" > {tmp_path}/given; exit 1')
    record_one(program, victim, seconds=3, native=True, idle=True, pauses=False)
    given = (tmp_path / "given").read_text()
    assert given.startswith(f"record --pid {victim} --format flamegraph")
    assert "/" not in given  # it is the title of the flamegraph
    assert "--rate 100 --duration 3 " in given
    assert all(option in given for option in ("--native", "--idle", "--nonblocking"))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (f'echo "{PERMISSION}" >&2; exit 1', f"it may not look into the process; {remedy_for_permission()}"),
        ('echo "py-spy> x" >&2; echo "Error: no Python" >&2; exit 1', "it failed with status 1 (Error: no Python)"),
        ('echo "Reason: No stack counts found" >&2; exit 1', "--idle includes those that wait"),
        ("exit 0", "it wrote nothing"),
    ],
)
def test_a_failure_is_told_with_its_remedy(fake, victim, script, words):
    assert words in record_one(fake(script), victim).failure


def test_what_it_writes_is_returned_and_one_that_is_not_there_is_a_failure(fake, victim):
    program = fake('while [ "$1" != --output ]; do shift; done; echo "<svg/>" > "$2"')
    assert record_one(program, victim).text == "<svg/>\n"
    assert "cannot be started" in record_one("/no/such/py-spy", victim).failure


@pytest.mark.integration
def test_one_that_hangs_and_heeds_no_signal_is_ended(fake, victim, monkeypatch):
    monkeypatch.setattr(pyspy, "_LAST_WORDS_S", 0.2)
    started = time.monotonic()
    failure = record_one(fake("trap '' INT; exec sleep 60"), victim, grace_s=0.2).failure
    assert "did not end" in failure
    assert time.monotonic() - started < 20


def test_an_exception_meanwhile_leaves_nothing_behind(fake, victim):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(fake("exec sleep 60"), (victim,), PySpyOptions("flamegraph", 1, 100), interrupt)


@pytest.mark.parametrize(
    ("system", "scope", "container", "words"),
    [
        ("Darwin", None, False, "with sudo"),
        ("Linux", "1", True, "--cap-add SYS_PTRACE"),
        ("Linux", "1", False, "sysctl kernel.yama.ptrace_scope=0"),
        ("Linux", "3", False, "only a restart"),
        ("Linux", None, False, "SYS_PTRACE"),
    ],
)
def test_the_remedy_fits_the_machine(system, scope, container, words, tmp_path):
    if container:
        (tmp_path / ".dockerenv").touch()
    scope_file = Path(tmp_path / "ptrace_scope")
    if scope is not None:
        scope_file.write_text(f"{scope}\n")
    assert words in remedy_for_permission(system, scope_file, tmp_path)
