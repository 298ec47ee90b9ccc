"""Work of a known cost, to be planted into a stage of a pipeline.

Two kinds: `wait` leaves the cores free, as a disk, a network or an accelerator does; `spin` keeps a core busy, as
decoding and augmenting do. Both last by wall-clock time, the unit of a cost: counted in CPU time, the same work
would take longer by an unknown amount whenever the machine's other guests take the core.

Work *lasts*: what a stage does anyway is part of its planted time, so that the planted number is the whole
cost of the stage and not its cost on top of an unknown one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

Kind = Literal["wait", "spin"]

MAX_DEBT_S = 1e-3

_debts_s: defaultdict[int, float] = defaultdict(float)
"""By how much each piece of work of this process has lasted too long so far; its next turn is shorter by as much.

One for each, by its identity: were they to share one, a stage would pay for the lateness of the stage before it, and
would cost something else as soon as that one is served from a cache.
"""


@dataclass(frozen=True)
class Work:
    """Work that lasts a given time.

    Attributes:
        kind: `wait` for time without the CPU, `spin` for time with it.
        seconds: How long, including what was done between `begin` and `complete`.
    """

    kind: Kind
    seconds: float

    def begin(self) -> float:
        """A mark from which the time of this work counts."""
        return time.perf_counter()

    def complete(self, mark: float, times: float = 1.0) -> None:
        """Goes on working until the planted time since the mark is over, on average.

        Args:
            mark: When it began.
            times: For work that is not the same each time: how many times its seconds it lasts.

        A sleep always ends late, by 0.05 to 0.2 ms, and spinning by up to a round. With many short pieces of work in a
        batch that would be a tenth of the planted cost, so the excess is taken off the next turn. It is bounded: a
        process that was stopped for long has really lost that time.
        """
        if self.seconds <= 0:
            return
        deadline_s = mark + self.seconds * times
        end_s = deadline_s - _debts_s[id(self)]
        if self.kind == "spin":
            _spin_until(end_s)
        else:
            remaining_s = end_s - time.perf_counter()
            if remaining_s > 0:
                time.sleep(remaining_s)
        late_s = _debts_s[id(self)] + time.perf_counter() - deadline_s
        _debts_s[id(self)] = min(max(late_s, 0.0), MAX_DEBT_S)

    def run(self, times: float = 1.0) -> None:
        """The whole work at once.

        Not `__call__`: a callable attribute of a dataset looks like an augmentation.
        """
        self.complete(self.begin(), times)


def wait(seconds: float) -> Work:
    """Work that waits, such as reading from a slow disk."""
    return Work("wait", seconds)


def spin(seconds: float) -> Work:
    """Work that uses the CPU, such as decoding."""
    return Work("spin", seconds)


def _spin_until(end_s: float) -> None:
    value = 1.0
    while time.perf_counter() < end_s:
        for _ in range(20):
            value = value * 1.0000001 + 1e-9
