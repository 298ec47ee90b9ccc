"""py-spy is run on processes and ended in time, whatever it does; what it says becomes a remedy."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from bottleneck.measure import pyspy
from bottleneck.measure.pyspy import PySpyOptions, find_py_spy, record, remedy_for_permission

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


def run(program, pid, seconds=1, grace_s=3.0, **options):
    return record(
        program, (pid,), PySpyOptions("flamegraph", seconds, 100, **options), lambda: time.sleep(0.01), grace_s
    )[pid]


def test_what_it_writes_is_returned(fake, victim):
    program = fake('while [ "$1" != --output ]; do shift; done; echo "<svg/>" > "$2"')
    assert run(program, victim).text == "<svg/>\n"


def test_options_reach_it(fake, victim, tmp_path):
    program = fake(f'echo "$@" > {tmp_path}/given; exit 1')
    run(program, victim, seconds=3, native=True, idle=True, pauses=False)
    given = (tmp_path / "given").read_text()
    assert given.startswith(f"record --pid {victim} --format flamegraph")
    assert "/" not in given  # it is the title of the flamegraph
    assert "--rate 100 --duration 3 " in given
    assert all(option in given for option in ("--native", "--idle", "--nonblocking"))


def test_missing_permission_is_told_with_its_remedy(fake, victim):
    failure = run(fake(f'echo "{PERMISSION}" >&2; exit 1'), victim).failure
    assert "it may not look into the process" in failure
    assert remedy_for_permission() in failure


def test_a_failure_is_told_in_its_own_words(fake, victim):
    failure = run(fake('echo "py-spy> Sampling" >&2; echo "Error: no Python here" >&2; exit 1'), victim).failure
    assert failure == "it failed with status 1 (Error: no Python here)"


def test_a_flamegraph_without_a_sample_is_told_with_what_shows_more(fake, victim):
    script = 'echo "Error: Failed to write flamegraph" >&2; echo "Reason: No stack counts found" >&2; exit 1'
    assert "--idle shows those that wait" in run(fake(script), victim).failure


def test_one_that_writes_nothing_is_a_failure(fake, victim):
    assert run(fake("exit 0"), victim).failure == "it wrote nothing"


def test_one_that_is_not_there_is_a_failure(victim):
    assert "cannot be started" in run("/no/such/py-spy", victim).failure


def test_one_that_is_no_program_is_a_failure(victim, tmp_path):
    (tmp_path / "py-spy").write_text("\x00")
    assert "cannot be started" in run(str(tmp_path / "py-spy"), victim).failure


@pytest.mark.integration
def test_one_that_hangs_and_heeds_no_signal_is_ended(fake, victim, monkeypatch):
    monkeypatch.setattr(pyspy, "_LAST_WORDS_S", 0.2)
    started = time.monotonic()
    failure = run(fake("trap '' INT; exec sleep 60"), victim, grace_s=0.2).failure
    assert "did not end" in failure
    assert time.monotonic() - started < 20


@pytest.mark.integration
def test_one_that_hangs_is_ended_while_the_loader_gives_nothing(fake, victim, monkeypatch):
    """It holds the worker, so that the main process waits for a batch and ends nothing itself."""
    monkeypatch.setattr(pyspy, "_LAST_WORDS_S", 0.2)
    fake_batch = subprocess.Popen(["sleep", "4"])
    program = fake("trap '' INT; exec sleep 60")
    with monkeypatch.context() as patched:
        ended_s = []
        original = subprocess.Popen.kill
        patched.setattr(subprocess.Popen, "kill", lambda self: (ended_s.append(time.monotonic()), original(self)))
        started = time.monotonic()
        record(program, (victim,), PySpyOptions("flamegraph", 1, 100), fake_batch.wait, 0.2)
    assert ended_s[0] - started < 3.5


def test_an_exception_meanwhile_leaves_nothing_behind(fake, victim):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(fake("exec sleep 60"), (victim,), PySpyOptions("flamegraph", 1, 100), interrupt)


def test_it_is_found_beside_python_or_on_the_path(monkeypatch, tmp_path, fake):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    assert find_py_spy() is None
    beside = fake("exit 0")
    assert find_py_spy() == beside
    monkeypatch.setattr(sys, "executable", "/no/python")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_py_spy() == beside


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
