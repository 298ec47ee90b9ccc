"""Sample the stack of a thread from another one of the same process, where no profiler may look in from outside."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

RawFrame = tuple[str, str, int]
"""Function, file, and the line in which the function begins."""
_DEEPEST = 200
"""Frames of a stack that are kept, from the innermost outwards."""


_SWITCH_INTERVAL_S = 0.0002
"""How long the sampler waits for the interpreter's lock before it asks for it. With Python's 5 ms, functions that hold
the lock would be sampled only when they have called one that releases it."""


@dataclass
class StackCount:
    """How often one stack was sampled."""

    count: int = 0
    computing: float | None = 0.0
    """The samples, in parts, for which the thread had CPU time; None where that is unknown."""


@dataclass
class SampledStacks:
    """Stacks, outermost frame first, and how often each was sampled."""

    stacks: dict[tuple[RawFrame, ...], StackCount] = field(default_factory=dict)


class StackSampler:
    """Samples the thread that makes it.

    Args:
        rate_hz: Samples a second.
        clock: Seconds from any beginning.
        cpu_clock: CPU seconds of the sampled thread, None where that is unknown.
    """

    def __init__(
        self,
        rate_hz: float,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float | None] | None = None,
    ) -> None:
        self._thread_id = threading.get_ident()
        self._interval_s = 1.0 / rate_hz
        self._switch_interval_s = sys.getswitchinterval()
        self._clock, self._cpu_clock = clock, cpu_clock or _make_cpu_clock(self._thread_id)
        self._before_s, self._cpu_before_s = clock(), self._cpu_clock()
        self._sampled = SampledStacks()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bottleneck-stack-sampler", daemon=True)

    def start(self) -> None:
        sys.setswitchinterval(min(_SWITCH_INTERVAL_S, self._switch_interval_s))
        self._thread.start()

    def stop(self) -> SampledStacks:
        self._stop.set()
        self._thread.join()
        sys.setswitchinterval(self._switch_interval_s)
        return self._sampled

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.take(sys._current_frames().get(self._thread_id))

    def take(self, frame: FrameType | None) -> None:
        """Count one sample; it stands for the time since the last one."""
        now_s, cpu_s = self._clock(), self._cpu_clock()
        passed_s = now_s - self._before_s
        computing: float | None = None
        if cpu_s is not None and self._cpu_before_s is not None and passed_s > 0:
            computing = min(1.0, (cpu_s - self._cpu_before_s) / passed_s)
        self._before_s, self._cpu_before_s = now_s, cpu_s
        if frame is None:
            return
        seen = self._sampled.stacks.setdefault(_read_stack(frame), StackCount())
        seen.count += 1
        seen.computing = None if computing is None or seen.computing is None else seen.computing + computing


def _read_stack(innermost: FrameType) -> tuple[RawFrame, ...]:
    frames: list[RawFrame] = []
    frame: FrameType | None = innermost
    while frame is not None and len(frames) < _DEEPEST:
        code = frame.f_code
        frames.append((getattr(code, "co_qualname", code.co_name), code.co_filename, code.co_firstlineno))
        frame = frame.f_back
    return tuple(reversed(frames))


def _make_cpu_clock(thread_id: int) -> Callable[[], float | None]:
    try:
        clock_id = time.pthread_getcpuclockid(thread_id)
    except (AttributeError, OSError):  # not on every system
        return lambda: None
    return lambda: time.clock_gettime(clock_id)
