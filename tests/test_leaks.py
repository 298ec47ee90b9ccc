"""The fixture that nothing leaks: each kind of leak is caught, and what stays by design is not."""

import os
from pathlib import Path

import pytest

from tests.support.leaks import leaks_between, take_state, wait_for_leaks

pytest_plugins = ["pytester"]


def test_an_open_file_is_a_leak(tmp_path):
    before = take_state()
    with open(tmp_path / "kept.txt", "w"):
        (found,) = leaks_between(before, take_state())
    assert "kept.txt" in found
    assert leaks_between(before, take_state()) == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no /dev/shm")
def test_shared_memory_is_a_leak_unless_it_is_of_another_living_process():
    before = take_state()
    files = {pid: Path(f"/dev/shm/torch_{pid}_of_a_test") for pid in (os.getpid(), os.getppid())}
    for file in files.values():
        file.touch()
    found = leaks_between(before, take_state())
    for file in files.values():
        file.unlink()
    assert found == [f"{files[os.getpid()]} is left"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_a_reference_cycle_holds_is_no_leak(tmp_path):
    before = take_state()
    cycle = [open(tmp_path / "cycle.txt", "w")]  # noqa: SIM115 - left open is the point
    cycle.append(cycle)
    assert leaks_between(before, take_state())
    del cycle
    assert wait_for_leaks(before, pause=lambda _: None) == []


LEAKING = """
import os, subprocess, sys, threading
import multiprocessing, pytest

def test_descriptor(): os.dup(1)
def test_thread(): threading.Thread(target=threading.Event().wait, daemon=True, name="lost").start()
def test_child(): pytest.child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
def test_variable(): os.environ["LOST"] = "1"

@pytest.mark.leaks("to show that it can be waived")
def test_waived(): os.dup(1)

@pytest.mark.leaks()
def test_waived_without_a_reason(): pass

def nothing(): pass

def test_spawning():
    process = multiprocessing.get_context("spawn").Process(target=nothing)
    process.start()
    process.join()

def test_fork_server():
    process = multiprocessing.get_context("forkserver").Process(target=nothing)
    process.start()
    process.join()

def test_ends_the_child(): pytest.child.communicate(b"")
"""


@pytest.mark.integration
def test_the_fixture_fails_the_test_that_leaks(pytester, monkeypatch):
    tests = Path(__file__).parent
    pytester.makeconftest(
        (tests / "conftest.py").read_text() + "\nfrom tests.support import leaks\nleaks.PATIENCE_S = 0.2\n"
    )
    pytester.makepyfile(LEAKING)
    monkeypatch.setenv("PYTHONPATH", str(tests.parent))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=8, errors=5)
    result.stdout.fnmatch_lines_random(
        [
            "*ERROR at teardown of test_descriptor*",
            "*descriptor(s) of * left open*",
            "*ERROR at teardown of test_thread*",
            "*thread 'lost' is left*",
            "*ERROR at teardown of test_child*",
            "*child process * is left: *input()*",
            "*ERROR at teardown of test_variable*",
            "*os.environ has changed: *LOST*",
            "*ERROR at setup of test_waived_without_a_reason*",
        ]
    )
