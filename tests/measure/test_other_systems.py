"""A system without the features of Linux: everything starts, measures what it can, and names what it cannot."""

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest

from bottleneck.loader.control import read_file, write_file
from bottleneck.loader.observing.lines import LineSampler
from bottleneck.loader.processes import stop_workers
from bottleneck.measure.machine.unseen import unseen

CHILD = Path(__file__).with_name("taken_away.py")
ROOT = Path(__file__).parents[2]
SAID = {
    "dev_shm": [],
    "proc": ["core-waits-not-seen"],
    "fcntl": [],
    "sigkill": [],
    "io_counters": ["reads-not-seen"],
    "affinity": [],
    "thread_clock": [],
    "gil": ["lines-not-seen"],
}


ABSENT = [*SAID, "+".join(SAID)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return results of a diagnosis without one of these, and without all of them."""
    folder = tmp_path_factory.mktemp("results")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, CHILD, folder, *ABSENT]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return {absent: json.loads((folder / f"{absent}.json").read_text()) for absent in ABSENT}


@pytest.mark.integration
@pytest.mark.untimed
@pytest.mark.parametrize("absent", ABSENT)
def test_a_job_is_diagnosed_without(absent, results):
    result = results[absent]
    assert result["verdict"]["state"] in ("input_bound", "undecided")  # how sure, is a matter of time
    assert {"raw", "device"} <= {experiment["name"] for experiment in result["experiments"] if experiment["coupled"]}
    told = [warning["id"] for warning in result["warnings"] if warning["id"].endswith("-not-seen")]
    assert sorted(told) == sorted(id_ for name in absent.split("+") for id_ in SAID[name])


def test_nothing_is_said_where_everything_is_seen(tmp_path):
    (tmp_path / "thread-self").mkdir()
    (tmp_path / "thread-self/schedstat").write_text("1 2 3\n")
    assert list(unseen(tmp_path)) == []


def test_what_is_not_seen_is_said(tmp_path, monkeypatch):
    monkeypatch.delattr(psutil.Process, "io_counters")
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert [warning.id for warning in unseen(tmp_path)] == ["reads-not-seen", "core-waits-not-seen", "lines-not-seen"]


def test_lines_are_sampled_without_a_clock_of_a_single_thread(monkeypatch):
    monkeypatch.delattr(time, "pthread_getcpuclockid")
    seen = []
    sampler = LineSampler(lambda frame, spent: seen.append(frame.f_code.co_name), draw=lambda: 1e-4)
    sampler.start()
    until_s = time.monotonic() + 5.0
    while not seen and time.monotonic() < until_s:
        sum(range(1000))
    sampler.stop()
    assert "test_lines_are_sampled_without_a_clock_of_a_single_thread" in seen


def sleep_for_good():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()


class Iterator:
    """As much of torch's iterator over workers as stopping them needs."""

    def __init__(self, *workers):
        self._workers, self._index_queues, self._worker_result_queue = workers, (), get_context("fork").SimpleQueue()

    def _shutdown_workers(self):
        pass


@pytest.mark.integration
@pytest.mark.untimed
def test_a_worker_is_killed_without_a_name_for_the_signal(monkeypatch):
    worker = get_context("fork").Process(target=sleep_for_good, daemon=True)
    worker.start()
    pid = worker.pid
    monkeypatch.setattr(type(worker._popen), "kill", lambda popen: popen._send_signal(9))
    monkeypatch.delattr(signal, "SIGKILL")
    stop_workers(Iterator(worker), kill=True)
    assert not psutil.pid_exists(pid)


def test_a_file_that_another_process_reads_is_replaced_when_it_has_read_it(tmp_path, monkeypatch):
    refused, replace = [], Path.replace

    def busy(path, target):
        if len(refused) < 3:
            refused.append(target)
            raise PermissionError(13, "The process cannot access the file", str(target))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", busy)
    waits = []
    write_file(tmp_path / "plan", "new", waits.append)
    assert read_file(tmp_path / "plan") == "new"
    assert len(waits) == 3


def test_a_file_that_stays_closed_to_us_is_an_error(tmp_path, monkeypatch):
    def refuse(path, target):
        raise PermissionError(13, "not yours", str(target))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError):
        write_file(tmp_path / "plan", "new", lambda _: None)
