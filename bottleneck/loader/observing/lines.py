"""Lines of the user's code that are at work: samples of the observed thread, by a thread that lives for one batch.

The time between samples is random and without memory, so that samples follow no rhythm of the code. Code in C that
keeps the GIL delays a sample to its end, where Python lets the sampler run while the thread is still on that line. Each
sample counts as the mean time between two, and as its delay on top: together that is, on average, the time of the line.
"""

from __future__ import annotations

import dis
import gc
import random
import sys
import threading
import time
from collections.abc import Callable, Collection
from functools import lru_cache
from types import CodeType, FrameType
from typing import NamedTuple

from bottleneck.job.users_code import is_ours, is_users
from bottleneck.loader.observing.meter import Spent
from bottleneck.loader.observing.observation import Line

EVERY_S = 5e-3
"""Mean time from one sample to the next."""
_SWITCH_S = 2e-5
"""Seconds for which a thread of Python keeps the GIL that the sampler waits for. With the usual 5 ms a sample would
come when the thread gives it up voluntarily, which is where it reads or waits."""
_CALLS_ON = frozenset(("torch.nn.modules.module", "torch.utils._contextlib", "torch._jit_internal", "contextlib", ""))
"""Modules whose code calls other code: modules of torch, decorators, the block of a `with`, generated code."""
_RANDOM = random.Random()
"""The other generators are the user's."""
NOWHERE = Line("", 0, "", None, library=False)
"""No line is known: the stage is code in C, called by us."""


class LineSampler:
    """Samples a thread, which starts and stops it; a sampler that fails is silent, and samples no more.

    Args:
        see: Called with the innermost frame of the thread, and the time that the sample stands for.
        read: The clocks of the wall and of the process, seconds; None: those of `clocks_for` the thread.
        draw: The time until the next sample.
    """

    def __init__(
        self,
        see: Callable[[FrameType, Spent], None],
        read: Callable[[], Spent] | None = None,
        draw: Callable[[], float] = lambda: _RANDOM.expovariate(1 / EVERY_S),
    ) -> None:
        self._see = see
        self._read = read
        self._draw = draw
        # Without a GIL the frames of a thread that runs may be gone while they are read.
        self._failed = not getattr(sys, "_is_gil_enabled", lambda: True)()
        # A bare lock: unlike an event, a child that the user's code forks can always release it.
        self._running = threading.Lock()
        """Held until the sampler has to end."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Sample the calling thread from now on."""
        if self._failed or self._thread is not None:
            return
        self._running.acquire()
        thread = threading.Thread(target=self._run, args=(threading.get_ident(),), name="bottleneck-lines", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._failed = True
            self._running.release()
            return
        self._thread = thread
        self._usual_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)

    def stop(self) -> None:
        """End the sampling, if there is any."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            sys.setswitchinterval(self._usual_s)
            self._running.release()
            thread.join()

    def _run(self, thread: int) -> None:
        try:
            read = self._read or clocks_for(thread)
            last, wanted_s = read(), self._draw()
            while not self._running.acquire(timeout=wanted_s):
                now = read()
                passed_s = now.wall_s - last.wall_s
                stands_s = EVERY_S + max(0.0, passed_s - wanted_s)
                computing = (now.cpu_s - last.cpu_s) / passed_s if passed_s > 0 else 0.0
                collects = gc.isenabled()
                # Before Python 3.12 a collection may begin where the object of a frame is made. Its callbacks and
                # finalizers are Python, which lets the sampled thread run on and leave that frame: the object then
                # shows what the memory is used for next, and the process ends with SIGSEGV.
                gc.disable()
                try:
                    self._see(sys._current_frames()[thread], Spent(stands_s, stands_s * computing))
                finally:
                    if collects:
                        gc.enable()
                last, wanted_s = read(), self._draw()
            self._running.release()
        except Exception:  # noqa: BLE001 - the user's batch goes on
            self._failed = True


def clocks_for(thread: int) -> Callable[[], Spent]:
    """Return what reads the wall clock and the CPU clock of the process, for samples of one of its threads.

    The process's clock counts all threads: code in C may compute in its own threads. The kernel brings another
    thread's part up to date at ticks, at switches, and where that thread's own clock is read. Without the last, code in
    C that computes for milliseconds and has released the GIL seems to wait.

    Args:
        thread: Its `threading.get_ident()`.
    """
    # macOS and Windows have no clock of another thread.
    own_clock = time.pthread_getcpuclockid(thread) if hasattr(time, "pthread_getcpuclockid") else None

    def read() -> Spent:
        if own_clock is not None:
            time.clock_gettime(own_clock)
        return Spent(time.perf_counter(), time.process_time())

    return read


class _Frame(NamedTuple):
    code: CodeType
    instruction: int
    module: str


def line_of(innermost: FrameType, entries: Collection[CodeType], uncharged: Collection[str] = ()) -> Line | None:
    """The user's line that is at work, or the outermost of a library right below us; None for time that is ours.

    Args:
        innermost: Where the thread is.
        entries: The functions in which we call the user's code.
        uncharged: Files of the package whose time is charged to nothing.
    """
    stack: list[_Frame] = []
    frame: FrameType | None = innermost
    # All of it at once: what follows may let the thread run on.
    while frame is not None and frame.f_code not in entries:
        stack.append(_Frame(frame.f_code, frame.f_lasti, frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return None if frame is None else _charged(stack, uncharged)


def line_within(innermost: FrameType, around: Collection[FrameType]) -> Line | None:
    """The same for code that calls us: a loop, from the frame that both stacks have; None if they share none.

    Our own frames in between, which only watch calls, count for nothing.

    Args:
        innermost: Where the thread is.
        around: The frames from which the loop has asked for its batch.
    """
    stack: list[_Frame] = []
    frame: FrameType | None = innermost
    while frame is not None:
        stack.append(_Frame(frame.f_code, frame.f_lasti, frame.f_globals.get("__name__", "")))
        if frame in around:
            return _charged([seen for seen in stack if not is_ours(seen.code.co_filename)])
        frame = frame.f_back
    return None


def _charged(stack: list[_Frame], uncharged: Collection[str] = ()) -> Line | None:
    below: _Frame | None = None
    library: tuple[_Frame, _Frame | None] | None = None
    for seen in stack:
        file = seen.code.co_filename
        if file in uncharged:
            return None
        if is_users(file):
            return _line(seen, below, library=False)
        if is_ours(file):
            if library is not None:
                break
        elif not file.startswith("<") and seen.module not in _CALLS_ON:
            library = seen, below
        if seen.module not in _CALLS_ON:
            below = seen
    return NOWHERE if library is None else _line(*library, library=True)


def _line(at: _Frame, below: _Frame | None, *, library: bool) -> Line:
    calls = None if below is None or is_ours(below.code.co_filename) else f"{below.module}.{below.code.co_name}"
    line = line_at(at.code, at.instruction)
    return Line(at.code.co_filename, line, at.code.co_name, calls, library)


@lru_cache(maxsize=1024)
def line_at(code: CodeType, offset: int) -> int:
    """Return the line of an instruction; of one that goes back to the top of a loop, that of the top.

    A thread gives way to the sampling one only there and at calls: what a loop of plain Python computes is all seen at
    its end, in a line that does little, or in none.
    """
    at = next((one for one in dis.get_instructions(code) if one.offset == offset), None)
    if at is not None and at.opname.startswith("JUMP_") and isinstance(at.argval, int):
        offset = min(offset, at.argval)
    lines = [line for start, _, line in code.co_lines() if start <= offset and line is not None]
    return lines[-1] if lines else code.co_firstlineno
