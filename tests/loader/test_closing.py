"""Stopping is quiet, bounded in time and complete, whatever the workers are doing; the leak check sees the rest."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing import resource_sharer
from multiprocessing.connection import SocketClient
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from bottleneck.job.cuts import find_sites
from bottleneck.loader import modes
from bottleneck.loader.processes import ignore_hang_ups, stop_workers
from bottleneck.loader.switched import SwitchedLoader
from tests.loader.staged_datasets import SlowAt, Traced, plain, switched, take

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
BOUND_S = 10.0
"""Maximum time of any way of stopping, on a busy machine; most take a fraction of a second."""


def all_ended(pids):
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)


def closed(loader, act=None):
    """Start, record, do something, close; returns the seconds that the closing took."""
    with switched(loader) as wrapped:
        if act is not None:
            act(wrapped)
        pids, started = wrapped.workers, time.monotonic()
        wrapped.close()
        seconds = time.monotonic() - started
        assert all_ended(pids)
        return seconds


@pytest.mark.parametrize("experiment", ["after_collate", "raw", modes.RECORD | modes.ALL])
def test_in_every_mode(experiment):
    assert closed(plain(Traced()), lambda wrapped: take(wrapped, experiment, 3)) < BOUND_S


def test_a_hand_over_that_the_main_process_leaves_halfway_is_no_failure(monkeypatch, capfd):
    # Guards: Ctrl-C while a tensor was handed over printed a traceback from a worker.
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    ignore_hang_ups()
    address, _ = resource_sharer.DupFd(0)._id
    SocketClient(address).close()
    resource_sharer.stop(timeout=BOUND_S)  # ends its thread, after the remaining work
    assert not capfd.readouterr().err
    sys.excepthook(ZeroDivisionError, ZeroDivisionError("of the user's"), None)
    assert "of the user's" in capfd.readouterr().err


def test_a_worker_may_be_asked_again_as_python_ends():
    # Guards: older versions of torch do, and printed a traceback for each worker of a diagnosis.
    context = multiprocessing.get_context("fork")
    worker = context.Process(target=int)
    worker.start()
    stop_workers(
        SimpleNamespace(
            _workers=[worker], _index_queues=[], _worker_result_queue=context.Queue(), _shutdown_workers=worker.join
        ),
        kill=False,
    )
    worker.join(timeout=1)
    assert not worker.is_alive()


def test_before_anything_has_started_and_twice():
    loader = plain(Traced())
    wrapped = SwitchedLoader(loader, find_sites(loader.dataset), seed=0, hang_s=30.0)
    wrapped.close()
    wrapped.close()


@pytest.mark.leaks("the death can interrupt PyTorch while it has temporary files open to test the descriptor limit")
def test_after_a_worker_was_killed():
    def kill(wrapped):
        take(wrapped, "raw", 2)
        os.kill(wrapped.workers[0], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="killed by signal|exited unexpectedly"):
            for _ in range(1000):
                wrapped.next_batch()

    assert closed(plain(Traced()), kill) < BOUND_S


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_right_after_a_worker_was_killed_or_while_it_is_stopped(number):
    # Nobody has noticed yet, and a queue's lock may have died with the worker.
    assert closed(plain(Traced()), lambda wrapped: os.kill(wrapped.workers[1], number)) < BOUND_S


class LostConnection:
    """An iterator over a queue whose other end is gone."""

    def __next__(self):
        raise ConnectionResetError("reset by peer")


def test_a_worker_that_was_killed_while_it_handed_over_is_told_as_such():
    with switched(plain(Traced())) as wrapped:
        wrapped._iterator = LostConnection()
        with pytest.raises(ConnectionResetError):  # all workers are there: something else is wrong
            wrapped.next_batch()
        pid, told = wrapped.workers[0], []
        for _ in range(3):  # by torch's handler of SIGCHLD once, whenever it comes, and by us
            with pytest.raises(RuntimeError, match="DataLoader worker") as raised:
                with suppress(ProcessLookupError):  # it is gone for good once its exit code was looked at
                    os.kill(pid, signal.SIGKILL)
                wrapped.next_batch()
            told.append(str(raised.value))
        assert f"DataLoader worker (pid(s) {pid}) exited unexpectedly: SIGKILL" in told


def test_shared_memory_that_a_killed_worker_left_is_removed():
    # Killed between making it and unlinking it, which is what the leak check saw once in a while.
    def leave_and_kill(wrapped):
        Path(f"/dev/shm/torch_{wrapped.workers[0]}_1234_5").touch()
        os.kill(wrapped.workers[0], signal.SIGKILL)

    closed(plain(Traced()), leave_and_kill)


def test_while_a_worker_hangs_in_a_sample():
    dataset = SlowAt(slow_index=600, slow_s=600.0)
    loader = plain(dataset, batch_size=1, num_workers=1, sampler=range(1000))

    def hang(wrapped):
        wrapped.switch(modes.ALL)
        while int(wrapped.next_batch()[0][0, 0]) < 599:
            pass

    assert closed(loader, hang) < BOUND_S


def test_a_worker_that_hangs_is_noticed():
    dataset = SlowAt(slow_index=600, slow_s=600.0)
    loader = plain(dataset, batch_size=1, num_workers=1, sampler=range(1000))
    with switched(loader, hang_s=0.5) as wrapped, pytest.raises(RuntimeError, match="timed out"):
        wrapped.switch(modes.ALL)
        for _ in range(800):
            wrapped.next_batch()


def test_a_worker_that_stands_still_while_it_hands_a_tensor_over_is_noticed():
    # PyTorch's timeout does not: the main process waits for a socket of the worker's.
    loader = plain(Traced(), num_workers=1)
    with switched(loader, hang_s=0.5) as wrapped:
        wrapped.switch(modes.ALL)
        os.kill(wrapped.workers[0], signal.SIGSTOP)
        with pytest.raises(RuntimeError, match=r"timed out after 0\.5 seconds"):
            for _ in range(10):
                wrapped.next_batch()


def run_script(body):
    script = f"import sys; sys.path.insert(0, {str(HERE)!r})\nimport time\nfrom staged_datasets import *\n{body}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=HERE.parents[1], check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_quiet_with_large_pickles_in_flight_when_a_worker_hangs_and_when_one_was_killed():
    # Guards: torch 2.15 workers abort at exit ('terminate called without an active exception'), and the loader's
    # destructor prints a traceback.
    done = run_script(
        "import os, signal\n"
        "for experiment in 3 * ['raw', 'after_collate']:\n"
        "    with switched(plain(LargePickles(), collate_fn=list, prefetch_factor=4)) as wrapped:\n"
        "        take(wrapped, experiment, 3)\n"
        "        time.sleep(0.1)\n"
        "with switched(plain(SlowAt(600, 600.0), batch_size=1, num_workers=1)) as wrapped:\n"
        "    wrapped.switch(modes.ALL)\n"
        "    while int(wrapped.next_batch()[0][0, 0]) < 599:\n"
        "        pass\n"
        "with switched(plain(Traced())) as wrapped:\n"
        "    take(wrapped, 'raw', 3)\n"
        "    os.kill(wrapped.workers[0], signal.SIGKILL)\n"
        "print('done')\n"
    )
    assert done.stdout == "done\n"
    assert done.stderr == ""


def test_ctrl_c_does_not_reach_the_workers():
    # The main process stops them in order; a traceback of each of them would hide the message.
    def interrupt(wrapped):
        take(wrapped, "raw", 2)
        for pid in wrapped.workers:
            os.kill(pid, signal.SIGINT)
        take(wrapped, "after_collate", 8)
        take(wrapped, "raw", 8)

    closed(plain(Traced()), interrupt)
