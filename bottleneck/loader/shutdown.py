"""Stop the workers of a DataLoader cleanly, or at once; through torch's own iterator, which has no way of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from multiprocessing import resource_sharer
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from torch.utils.data import _utils

from bottleneck.loader.worker_errors import find_failure


def keep_quiet_about_broken_receivers() -> None:
    """Say nothing, in a worker, of a tensor that the main process stopped receiving because it was interrupted.

    Python's own thread that hands tensors over would print a traceback, as if something in the job had failed.
    """
    report = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        by = traceback.tb_frame.f_globals.get("__name__") if traceback is not None else None
        if by != resource_sharer.__name__ or not isinstance(error, (ConnectionError, EOFError)):
            report(kind, error, traceback)

    sys.excepthook = hook


def detach_sigchld(iterator: Any) -> None:
    """Keep the loader's SIGCHLD handler from raising when workers end, wherever this process happens to be."""
    if getattr(iterator, "_worker_pids_set", False):
        _utils.signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]  # torch's own
        iterator._worker_pids_set = False


def drain(iterator: Any, patience_s: float) -> bool:
    """Receive what is in flight until nothing is left; return whether that came off in time."""
    # Receiving blocks without end when a worker stands still while it hands over a tensor.
    watchdog = threading.Timer(patience_s, _kill_workers, (iterator,))
    watchdog.start()
    try:
        return _receive_all(iterator, time.monotonic() + patience_s)
    finally:
        watchdog.cancel()
        watchdog.join()


def _receive_all(iterator: Any, deadline_s: float) -> bool:
    iterator._timeout = 0.1
    while time.monotonic() < deadline_s:
        try:
            next(iterator)
        except StopIteration:
            return True
        except RuntimeError as error:
            if "timed out" not in str(error) and not find_failure(error):
                return False
        except Exception:  # noqa: BLE001 - a failure of the user's code, reported before
            pass
    return False


def kill_hung_workers(iterator: Any) -> None:
    """Kill workers that stand still, so that what waits for them gets an error."""
    detach_sigchld(iterator)
    _kill_workers(iterator)


def _kill_workers(iterator: Any) -> None:
    for worker in iterator._workers:
        _kill(worker)


def _kill_stopped_workers(iterator: Any) -> None:
    """Kill workers that are stopped: they hear neither that they are to end nor the SIGTERM that torch sends then."""
    for worker in iterator._workers:
        with contextlib.suppress(psutil.Error):
            if psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED:
                _kill(worker)


def _kill(worker: Any) -> None:
    if worker.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)


def _has_ended(*_: object, **__: object) -> bool:
    """What a process that was closed answers to `join` and `is_alive`."""
    return False


def stop_workers(iterator: Any, *, kill: bool) -> None:
    """Let the workers end, and close the queues; those that do not end by themselves are killed on request."""
    if kill:
        _kill_workers(iterator)
        for worker in iterator._workers:
            worker.join(timeout=5)
    else:
        _kill_stopped_workers(iterator)
    iterator._shutdown_workers()
    for worker in iterator._workers:
        worker.join(timeout=1)
        if worker.is_alive():
            # A process that is stopped hears nothing of torch's SIGTERM.
            _kill(worker)
            worker.join(timeout=5)
        if not worker.is_alive():
            # Killed between making a piece of shared memory and unlinking it, a worker leaves the file behind.
            for left in Path("/dev/shm").glob(f"torch_{worker.pid}_*"):
                left.unlink(missing_ok=True)
            worker.close()
            # Older versions of torch ask each worker once more as Python ends, and a closed process raises.
            worker.join = worker.is_alive = _has_ended
    for queue in (*iterator._index_queues, iterator._worker_result_queue):
        queue.close()
        feeder = getattr(queue, "_thread", None)
        if feeder is not None:
            feeder.join(timeout=1)
