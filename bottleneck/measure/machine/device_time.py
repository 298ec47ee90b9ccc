"""Busy and idle time of an asynchronous device, by events of the stream that the loop computes on.

A step that returns has only been launched, so that host clocks say nothing about single steps. Events are records of
the device's own clock: they need no second experiment, and are independent of the host's work meanwhile.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import torch
from scipy.special import stdtrit

from bottleneck.results.evidence import DeviceTime
from bottleneck.results.values import Interval

MIN_PARTS = 3
"""Parts of the batches whose scatter gives the interval, at least."""
MAX_PARTS = 8
"""The same at most."""


class Event(Protocol):
    """Interface of `torch.cuda.Event(enable_timing=True)`."""

    def record(self) -> None: ...

    def elapsed_time(self, end: Any) -> float:
        """Return the milliseconds from this event to another one."""


@dataclass
class StreamEvents:
    """Marks the edges of copy and step of each batch of raw.

    Args:
        make_event: Makes an event that records times.
    """

    make_event: Callable[[], Event]
    batches: list[tuple[float, float, float]] = field(default_factory=list)
    """Seconds of copy, of step, and idle until the next batch, for each batch."""
    _marks: list[Event] = field(default_factory=list)

    def mark(self) -> None:
        """Record an event: before the copy of a batch, before its step, and after that."""
        event = self.make_event()
        event.record()
        self._marks.append(event)

    def begin_block(self) -> None:
        self._marks.clear()

    def end_block(self) -> None:
        """Read the events of a block; the device has done all its work."""
        steps = [self._marks[at : at + 3] for at in range(0, len(self._marks) - 2, 3)]
        for (copying, stepping, stepped), (following, *_) in pairwise(steps):
            times_ms = (a.elapsed_time(b) for a, b in ((copying, stepping), (stepping, stepped), (stepped, following)))
            copy_s, step_s, idle_s = (max(0.0, each_ms / 1e3) for each_ms in times_ms)
            self.batches.append((copy_s, step_s, idle_s))
        self._marks.clear()

    def evidence(self) -> DeviceTime:
        """Return the evidence from the events; empty with too few batches."""
        count = len(self.batches)
        if count < MIN_PARTS:
            return DeviceTime()
        copy_s, step_s, idle_s = (statistics.fmean(column) for column in zip(*self.batches, strict=True))
        parts = min(MAX_PARTS, count)
        shares = [_share(self.batches[count * at // parts : count * (at + 1) // parts]) for at in range(parts)]
        half = float(stdtrit(parts - 1, 0.975)) * statistics.stdev(shares) / math.sqrt(parts)
        share = _share(self.batches)
        return DeviceTime(
            batches=count,
            copy_s_per_batch=copy_s,
            step_s_per_batch=step_s,
            idle_s_per_batch=idle_s,
            efficiency=Interval(share, max(0.0, share - half), min(1.0, share + half)),
        )


def _share(batches: list[tuple[float, float, float]]) -> float:
    return sum(step_s for _, step_s, _ in batches) / max(sum(map(sum, batches)), 1e-12)


def make_events(device: torch.device) -> StreamEvents | None:
    """Return a recorder of a device's events; None if it has no events, such as a CPU."""
    kind = getattr(getattr(torch, device.type, None), "Event", None)
    if kind is None:
        return None
    try:
        kind(enable_timing=True)
    except (RuntimeError, TypeError):
        return None
    return StreamEvents(lambda: kind(enable_timing=True))
