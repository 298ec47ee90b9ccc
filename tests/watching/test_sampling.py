"""Reading a job from outside: what py-spy wrote, which processes, and why they may not be looked into."""

from __future__ import annotations

import json
import os
import types
from dataclasses import dataclass, field

import psutil
import pytest

from bottleneck.errors import MeasurementError, UsageError
from bottleneck.measure.passes.pyspy import PySpyOutput
from bottleneck.results.stacks import Clocks
from bottleneck.watching import processes, sampling
from bottleneck.watching.attach import attach
from bottleneck.watching.processes import python_processes, source_of, topmost, used_between
from bottleneck.watching.sampling import read_stacks, watch_job
from tests.support.clock import FakeClock
from tests.support.watched_factory import WAITS, loop_of

HERE = os.getpid()


def recorded(pid: int, stacks, thread: str = "MainThread") -> str:
    """A file of speedscope's, as py-spy 0.4 writes one with threads and processes apart."""
    frames = [{"name": f'process {pid}:"python train.py"'}, {"name": f'thread (0x7F): "{thread}"'}]
    index = {}
    for frame in dict.fromkeys(frame for stack in stacks for frame in stack):
        index[frame] = len(frames)
        frames.append({"name": frame.function, "file": frame.file, "line": frame.line})
    samples = [[0, 1, *(index[frame] for frame in stack)] for stack in stacks]
    profile = {"type": "sampled", "name": f'Process {pid} Thread 7 "{thread}"', "samples": samples}
    return json.dumps({"shared": {"frames": frames}, "profiles": [profile]})


def test_stacks_are_read_by_process_and_thread_from_the_outermost_frame_inwards():
    found = read_stacks(recorded(7, [WAITS, WAITS[:3]], "Thread-1 (fill)"))
    assert list(found) == [7]
    assert found[7][0].name == "Thread-1 (fill)"
    assert found[7][0].stacks == (WAITS, WAITS[:3])


# --- a job, with everything outside of it invented ---------------------------------------------------------------


@dataclass
class Machine:
    """A machine with the output of py-spy, and its duration."""

    output: PySpyOutput
    clock: FakeClock = field(default_factory=FakeClock)
    asked: list = field(default_factory=list)

    def record(self, program, pids, options, keep_busy, grace_s):
        self.asked.append((pids, options))
        ends_s = self.clock() + options.seconds
        while self.clock() < ends_s:
            keep_busy()
        return dict.fromkeys(pids, self.output)

    def attach(self, pid=HERE, seconds=15.0, progress=None):
        return attach(pid, seconds, progress, self.clock, self.clock.advance)


@pytest.fixture
def machine(monkeypatch):
    made = Machine(PySpyOutput(recorded(HERE, loop_of(waits=300, trains=200))))
    monkeypatch.setattr(sampling, "record", made.record)
    monkeypatch.setattr(sampling, "python_processes", lambda pid: [psutil.Process(pid)])
    return made


def test_a_job_is_judged_within_the_time_that_it_was_given(machine):
    found = machine.attach(seconds=15.0)
    assert found.verdict.state == "input_bound"
    assert (found.pid, found.ranks[0].pid, found.ranks[0].samples) == (HERE, HERE, 500)
    assert machine.clock() <= 15.0
    assert 12 <= machine.asked[0][1].seconds <= 14


def test_the_job_is_never_stopped_for_a_sample(machine):
    machine.attach()
    ((pids, options),) = machine.asked
    assert pids == (HERE,)
    assert not options.pauses
    assert options.idle
    assert options.in_full


def test_progress_is_told(machine):
    told = []
    machine.attach(progress=told.append)
    assert told[-1].budget_s == 15.0
    assert told[-1].elapsed_s > 10.0


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("it may not look into the process; start the container with --cap-add SYS_PTRACE", "--cap-add SYS_PTRACE"),
        ("it may not look into the process; run the command as root", "run the command as root"),
    ],
)
def test_a_process_that_may_not_be_looked_into_is_refused_with_the_remedy(machine, monkeypatch, failure, said):
    machine.output = PySpyOutput(failure="it failed with status 1 (Error: No python processes found)")
    monkeypatch.setattr(sampling, "why_py_spy_fails", lambda program, pid, limit_s: failure)
    with pytest.raises(MeasurementError, match=said) as caught:
        machine.attach()
    assert f"py-spy cannot look into process {HERE}" in str(caught.value)


def test_what_py_spy_said_is_told_where_it_may_look(machine, monkeypatch):
    machine.output = PySpyOutput(failure="it wrote nothing")
    monkeypatch.setattr(sampling, "why_py_spy_fails", lambda program, pid, limit_s: "")
    with pytest.raises(MeasurementError, match="it wrote nothing"):
        machine.attach()


def test_without_py_spy_it_says_how_to_get_it(machine, monkeypatch):
    monkeypatch.setattr(sampling, "find_py_spy", lambda: None)
    with pytest.raises(MeasurementError, match="pip install py-spy"):
        watch_job(HERE, 5.0, machine.clock, machine.clock.advance)


def test_a_process_that_trains_nothing_is_refused(machine):
    machine.output = PySpyOutput(recorded(HERE, [WAITS[:1]] * 50))
    with pytest.raises(MeasurementError, match="Nothing trains in process"):
        machine.attach()


def test_the_verdict_has_the_time_at_which_it_was_made(machine):
    assert machine.attach().created.endswith("+00:00")


# --- which processes ----------------------------------------------------------------------------------------------


def test_this_process_runs_python():
    assert python_processes(HERE)[0].pid == HERE


def test_a_pid_of_none_is_a_slip():
    with pytest.raises(UsageError, match="There is no process 4194305"):
        python_processes(4194305)


def test_a_process_of_another_user_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(processes.os, "geteuid", lambda: 65_533)
    with pytest.raises(MeasurementError, match=f"Process {HERE} belongs to another user .*Run bottleneck attach as"):
        python_processes(HERE)


def test_a_process_that_runs_no_python_is_refused(monkeypatch):
    monkeypatch.setattr(processes, "_runs_python", lambda process: False)
    with pytest.raises(MeasurementError, match="runs Python"):
        python_processes(HERE)


def test_processes_below_others_of_the_job_are_reached_through_these():
    inner = types.SimpleNamespace(pid=3, parents=lambda: [types.SimpleNamespace(pid=2), types.SimpleNamespace(pid=1)])
    outer = types.SimpleNamespace(pid=1, parents=list)
    assert topmost([outer, inner]) == [outer]


def test_what_was_used_is_a_difference_and_unknown_where_a_look_is_missing():
    assert used_between(Clocks(1.0, 2.0, 30), Clocks(4.0, 2.5, 90)) == Clocks(3.0, 0.5, 60)
    assert used_between(Clocks(1.0, None, 30), Clocks(4.0, 2.5, None)) == Clocks(3.0, None, None)
    assert used_between(None, Clocks(4.0)) is None


def test_a_file_is_read_as_the_process_sees_it(tmp_path):
    (tmp_path / "train.py").write_text("x = 1\n")
    assert source_of(HERE, str(tmp_path / "train.py")) == "x = 1\n"
    assert source_of(HERE, str(tmp_path / "gone.py")) is None
