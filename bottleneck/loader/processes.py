"""The worker processes of a loader: hung ones, their end, and how they died."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from bottleneck.job.replaced import replace_function
from bottleneck.job.torch_loading import close_queues, detach_sigchld, set_timeout, shut_down, workers_of
from bottleneck.job.users_code import text_of
from bottleneck.loader.user_code import find_failure


def ignore_hang_ups() -> None:
    """In a worker: say nothing when the main process hangs up while a tensor is handed over, as it does at Ctrl-C.

    A thread of `multiprocessing.resource_sharer` hands tensors over, and passes what it runs into to `sys.excepthook`.
    """

    def show_others(show: Callable[..., None]) -> Callable[..., None]:
        return lambda kind, *details: None if issubclass(kind, ConnectionError | EOFError) else show(kind, *details)

    replace_function(sys, "excepthook", show_others)


_MAX_GRACE_S = 5.0
"""PyTorch's own timeout, where it works, goes first by so much at most."""


class HangWatch:
    """Calls a function once, from a separate thread, when a wait takes longer than `limit_s`."""

    def __init__(self, on_hang: Callable[[], None], limit_s: float) -> None:
        self.waiting_since_s: float | None = None
        """When the present wait began, by the monotonic clock; None while nothing is waited for."""
        self.limit_s = limit_s
        self.hung = False
        self._on_hang = on_hang
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bottleneck-hang-watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        grace_s = min(_MAX_GRACE_S, self.limit_s)
        while not self._stopped.wait(grace_s):
            since_s = self.waiting_since_s
            if since_s is not None and time.monotonic() - since_s > self.limit_s + grace_s:
                self.hung = True
                self._on_hang()
                return

    def stop(self) -> None:
        """End the thread; safe to call twice."""
        self._stopped.set()
        self._thread.join()


def drain(iterator: Any, patience_s: float) -> bool:
    """Receive batches in flight until nothing is left; return True if that succeeded in time."""
    # Receiving blocks without end when a worker stands still while it hands over a tensor.
    watchdog = threading.Timer(patience_s, _kill_workers, (iterator,))
    watchdog.start()
    try:
        return _receive_all(iterator, time.monotonic() + patience_s)
    finally:
        watchdog.cancel()
        watchdog.join()


def _receive_all(iterator: Any, deadline_s: float) -> bool:
    set_timeout(iterator, 0.1)
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
    for worker in workers_of(iterator):
        _kill(worker)


def _kill(worker: Any) -> None:
    if worker.is_alive():
        with contextlib.suppress(ProcessLookupError):
            worker.kill()


def stop_workers(iterator: Any, *, kill: bool) -> None:
    """Let the workers end, and close the queues; those that do not end are killed on request."""
    if kill:
        _kill_workers(iterator)
        for worker in workers_of(iterator):
            worker.join(timeout=5)
    else:
        # Stopped processes hear neither the request to end nor the SIGTERM that torch sends then.
        for worker in workers_of(iterator):
            with contextlib.suppress(psutil.Error):
                if psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED:
                    _kill(worker)
    shut_down(iterator)
    for worker in workers_of(iterator):
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
            worker.join = worker.is_alive = lambda *_, **__: False
    close_queues(iterator)


def end_workers(iterator: Any, patience_s: float) -> None:
    """End the workers without noise; those that do not finish in time are killed, which is silent.

    A worker that exits while a large pickle is under way aborts with a message of C++'s on standard error, so that the
    queues are emptied first.
    """
    # First of all: from then on no death of a worker interrupts what follows.
    detach_sigchld(iterator)
    stop_workers(iterator, kill=not drain(iterator, patience_s))


_UNKNOWN = "exited unexpectedly"
_EXIT_CODE_S = 1.0
"""Between the end of a process and its exit code there may be a moment."""


@dataclass(frozen=True)
class Death:
    """The end of a worker.

    Attributes:
        signal: The name of the signal that killed it, such as `SIGKILL`; None if none did, or it is not known.
        status: Its exit status, if it ended on its own and that is known.
    """

    signal: str | None = None
    status: int | None = None


def died_of_unknown(error: BaseException) -> bool:
    """Return True if an exception says that workers ended, but not how."""
    text = text_of(error)
    return text.startswith("DataLoader worker") and text.endswith(_UNKNOWN)


def describe_deaths(dead: Iterable[BaseProcess]) -> str:
    """Say of workers that have ended how, in PyTorch's words.

    Args:
        dead: At least one; the first is the one that is described, as the others may have died of its death.
    """
    workers = list(dead)
    workers[0].join(_EXIT_CODE_S)
    code = workers[0].exitcode
    how = "" if code is None else f": {_name(-code)}" if code < 0 else f": status {code}"
    return f"DataLoader worker (pid(s) {', '.join(str(worker.pid) for worker in workers)}) {_UNKNOWN}{how}"


def find_death(text: str) -> Death | None:
    """Read how a worker ended from the text of PyTorch's exception, or of our own; None if it describes no such end."""
    if "DataLoader worker" not in text:
        return None
    by_signal = re.search(r"killed by signal: (.+?)\.(\s|$)", text)
    if by_signal is not None:
        return Death(signal=_DESCRIBED.get(by_signal[1], by_signal[1]))
    unexpected = re.search(rf"{_UNKNOWN}(?:(?:: status| with exit code) (\d+)|: (\S+))?", text)
    if unexpected is None:
        return None
    return Death(unexpected[2], int(unexpected[1]) if unexpected[1] else None)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # such as the real-time signals
        return f"signal-{number}"


_DESCRIBED = {signal.strsignal(number): number.name for number in reversed(signal.Signals)}
