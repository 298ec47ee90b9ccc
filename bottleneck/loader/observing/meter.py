"""Times that pass in each stage and in each single transform.

Wall-clock time and CPU time are taken together. What passes on the wall's clock and on no core of the process is
waiting: for a disk, the network, a lock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bottleneck.loader.observing.images import describe_output

_MAX_OUTPUTS = 16
"""Different sizes of a transform's output that are counted separately."""


@dataclass
class Spent:
    """Time that has passed somewhere."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    """CPU time of all threads of the process."""

    def add(self, other: Spent) -> None:
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s


@dataclass
class TransformSpent(Spent):
    """Time that has passed in a single transform."""

    name: str = ""
    order: int = 0
    """Its place among all of them, in the order in which they are kept."""
    calls: int = 0
    outputs: Counter[str] = field(default_factory=Counter)
    """Size and type of what it returned -> how often."""

    def note_output(self, value: Any) -> None:
        shape = describe_output(value)
        if shape in self.outputs or len(self.outputs) < _MAX_OUTPUTS:
            self.outputs[shape] += 1

    def add(self, other: Spent) -> None:
        super().add(other)
        if isinstance(other, TransformSpent):
            self.calls += other.calls
            self.outputs += other.outputs


def _core_wait_s() -> float | None:
    """Return for how long the calling thread has been ready to run and has had no core; None if unknown."""
    try:
        fields = Path("/proc/thread-self/schedstat").read_text().split()
        return int(fields[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True)
class Clocks:
    """Sources of the times; each gives seconds from any beginning."""

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time
    core_wait: Callable[[], float | None] = _core_wait_s


class Meter:
    """Charges the time that passes to a stage, and within it to a single transform."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._now: tuple[Spent, TransformSpent | None] = Spent(), None
        self._last = Spent()

    def enter(self, stage: Spent, transform: TransformSpent | None = None) -> tuple[Spent, TransformSpent | None]:
        """Charge what has passed so far, and from now on something else; return what was charged until now."""
        self._charge()
        before, self._now = self._now, (stage, transform)
        self._last = self._read()
        return before

    @contextmanager
    def uncharged(self) -> Iterator[None]:
        self._charge()
        yield
        self._last = self._read()

    def note_output(self, value: Any) -> None:
        """Note what a transform returned, in time that is left out."""
        self._charge()
        transform = self._now[1]
        if transform is not None:
            transform.note_output(value)
        self._last = self._read()

    def _read(self) -> Spent:
        return Spent(self._clocks.wall(), self._clocks.cpu())

    def _charge(self) -> None:
        now = self._read()
        passed = Spent(max(0.0, now.wall_s - self._last.wall_s), max(0.0, now.cpu_s - self._last.cpu_s))
        for charged in self._now:
            if charged is not None:
                Spent.add(charged, passed)
