"""Work of a known cost, to be planted into a stage of a pipeline.

Two kinds, because they behave differently on a busy machine: `wait` leaves the cores free, as a disk, a
network or an accelerator does; `spin` uses a core, as decoding and augmenting do.

Work *lasts*: what a stage does anyway is part of its planted time, so that the planted number is the whole
cost of the stage and not its cost on top of an unknown one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

Kind = Literal["wait", "spin"]

MAX_DEBT_S = 1e-3

_debt_s = 0.0
"""By how much the waits of this process have lasted too long so far; the next ones are shorter by as much."""
_spin_debt_s = 0.0
"""The same for spinning, which ends up to one round late."""


@dataclass(frozen=True)
class Work:
    """Work that lasts a given time.

    Attributes:
        kind: `wait` for time on the clock without the CPU, `spin` for time of the CPU.
        seconds: How long, including what was done between `begin` and `complete`.
    """

    kind: Kind
    seconds: float

    def begin(self) -> float:
        """A mark from which the time of this work counts."""
        return time.thread_time() if self.kind == "spin" else time.perf_counter()

    def complete(self, mark: float) -> None:
        """Goes on working until the planted time since the mark is over."""
        if self.seconds <= 0:
            return
        if self.kind == "spin":
            _spin_until(mark + self.seconds)
        else:
            _wait_until(mark + self.seconds)

    def run(self) -> None:
        """The whole work at once.

        Not `__call__`: a callable attribute of a dataset looks like an augmentation.
        """
        self.complete(self.begin())


def wait(seconds: float) -> Work:
    """Work that waits, such as reading from a slow disk."""
    return Work("wait", seconds)


def spin(seconds: float) -> Work:
    """Work that uses the CPU, such as decoding."""
    return Work("spin", seconds)


def _spin_until(deadline_s: float) -> None:
    # Thread time: what other processes take from this core must not count as work done. To ask for it enters the
    # kernel, which makes the code that comes next slow, so that in between the clock on the wall is asked.
    global _spin_debt_s  # noqa: PLW0603 - one clock error per process is what is meant
    end_s = deadline_s - _spin_debt_s
    now_s = time.thread_time()
    while now_s < end_s:
        _spin_on_the_wall(end_s - now_s)
        now_s = time.thread_time()
    _spin_debt_s = min(max(_spin_debt_s + now_s - deadline_s, 0.0), MAX_DEBT_S)


def _spin_on_the_wall(seconds: float) -> None:
    value = 1.0
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        for _ in range(20):
            value = value * 1.0000001 + 1e-9


def _wait_until(deadline_s: float) -> None:
    """Sleeps, on average to the deadline.

    A sleep always ends late, by 0.05 to 0.2 ms. With many short waits in a batch that would be a tenth of the
    planted cost, so the excess is taken off the next wait. It is bounded: a process that was stopped for long
    has really lost that time.
    """
    global _debt_s  # noqa: PLW0603 - one clock error per process is what is meant
    remaining_s = deadline_s - time.perf_counter() - _debt_s
    if remaining_s > 0:
        time.sleep(remaining_s)
    excess_s = time.perf_counter() - deadline_s
    _debt_s = min(max(_debt_s + excess_s, 0.0), MAX_DEBT_S)
