"""Run a script as Python would, and end it in order after `os._exit`, a signal, or in a loop that hangs."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, NoReturn

from bottleneck.errors import MeasurementError, UsageError
from bottleneck.job.replaced import replace_function
from bottleneck.measure.keep.interrupts import REQUESTS
from bottleneck.results.format import duration

_WRITE = "Write bottleneck run path/to/train.py ARGS."
_NO_SCRIPTS = {
    ".ipynb": ("notebook", "In the notebook, write with bottleneck.diagnosing() as run: train()."),
    ".sh": ("shell script", "In the shell script, write bottleneck run instead of python."),
}


@dataclass(frozen=True)
class Script:
    """A script or module to run.

    Attributes:
        name: The path of a file, or the name of a module.
        arguments: Arguments of the script.
        is_module: True for a module, as after `python -m`.
    """

    name: str
    arguments: Sequence[str]
    is_module: bool = False

    def check(self) -> None:
        """Refuse a file that is not a Python script, before torch is imported.

        Raises:
            UsageError: The script does not exist, or is not a Python script.
        """
        if self.is_module:
            return
        if not os.path.exists(self.name):
            raise UsageError(f"There is no script {self.name!r}.", _WRITE)
        if os.path.isdir(self.name) and not os.path.exists(os.path.join(self.name, "__main__.py")):
            raise UsageError(f"{self.name!r} is a folder.", _WRITE)
        kind = os.path.splitext(self.name)[1].lower()
        if kind in _NO_SCRIPTS:
            what, remedy = _NO_SCRIPTS[kind]
            raise UsageError(f"{self.name!r} is a {what}, not a Python script.", remedy)

    def run(self) -> None:
        """Run the script to its end. All of its exceptions are raised, SystemExit included."""
        sys.argv = [self.name, *self.arguments]
        sys.modules["__mp_main__"] = _Main("__mp_main__")
        if self.is_module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        else:
            path = os.path.abspath(self.name)  # as Python does, so that `__file__` is right after a chdir
            sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
            runpy.run_path(path, run_name="__main__")


class _Main(ModuleType):
    """The module that spawned workers call `__main__`, and pickle by that name: the script's, not ours."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["__main__"], name)


def wait_for_threads(already_there: Collection[threading.Thread]) -> None:
    """Wait for the threads that a script has started, as Python does at its end: its training may run in one."""
    while left := [one for one in threading.enumerate() if not one.daemon and one not in already_there]:
        left[0].join()


GRACE_S = 10.0
"""Seconds in which a loop in another thread may ask for a batch, or native code may handle a signal."""
_OVERDUE = signal.SIGRTMAX - 2 if hasattr(signal, "SIGRTMAX") else None
"""Signal that we send to this process, and that scripts and schedulers do not use; None if there is none (macOS)."""
exit_now = os._exit
"""Function that ends the process at once, also while `os._exit` is replaced."""


class Ends:
    """A context in which these ends are in order: measurements are reported, and no code of the script runs.

    Args:
        leave: Gets the reason for the end, reports, and ends the process; returns if there is nothing to report yet.
        lent_s: Returns how long the loop has had its batch [s]; None while it has none.
        timeout_s: Maximum duration for which it may have one.
    """

    def __init__(
        self, leave: Callable[[BaseException], None], lent_s: Callable[[], float | None], timeout_s: float
    ) -> None:
        self._leave, self._lent_s, self._timeout_s = leave, lent_s, timeout_s
        self._process = os.getpid()
        self._previous: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bottleneck-loop-watch", daemon=True)

    def __enter__(self) -> Ends:
        self._restore = replace_function(os, "_exit", lambda _: self._exit)
        for number in REQUESTS:
            previous = signal.getsignal(number)
            if callable(previous):
                self._previous[number] = previous
                signal.signal(number, self._requested)
        if _OVERDUE is not None:
            signal.signal(_OVERDUE, self._overdue)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(GRACE_S)
        self._restore()
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._requested:  # the script's own handler stays
                signal.signal(number, previous)
        if _OVERDUE is not None:
            signal.signal(_OVERDUE, signal.SIG_DFL)

    def _exit(self, status: int) -> NoReturn:
        if os.getpid() == self._process:  # and not a forked child
            self._leave(SystemExit(status))
        exit_now(status)

    def _requested(self, number: int, frame: FrameType | None) -> None:
        # Raised in the loop, the script would handle it, with a checkpoint of the weights trained for the diagnosis.
        if os.getpid() == self._process and self._lent_s() is not None:
            self._leave(KeyboardInterrupt())
        self._previous[number](number, frame)

    # --- a loop that does not come back --------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._over.wait(self._left_s()):
            if self._left_s() <= 0:
                if _OVERDUE is not None:
                    signal.pthread_kill(threading.main_thread().ident or 0, _OVERDUE)
                if not self._over.wait(GRACE_S) and self._left_s() <= 0:
                    self._leave(self._too_long())  # native code, which handles no signal

    def _left_s(self) -> float:
        return self._timeout_s - (self._lent_s() or 0.0)

    def _overdue(self, *_: object) -> None:
        if self._left_s() <= 0:
            self._leave(self._too_long())

    def _too_long(self) -> MeasurementError:
        return MeasurementError(
            f"The loop asked for no batch for {duration(self._timeout_s)}.",
            "If a step takes that long, or an evaluation within the loop, give a larger --step-timeout; if it waits "
            "for something, see where with `py-spy dump --pid PID`.",
        )
