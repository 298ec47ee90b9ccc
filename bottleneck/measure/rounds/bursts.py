"""Batches that come in bursts: a queue of the dataset's own, which refills at once, gives many after a long wait.

A block that holds no refill, or one where there should be a third of one, says nothing of the job. Blocks grow to have
some, within a share of the time for measuring; where that is too short, the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_OF_A_BLOCK = 3
SHARE = 1 / 8
"""Of the time for measuring, to what a block grows to have so many bursts."""
_FEWEST = 1.5
"""Seen so far; one alone may have been a hiccup of the machine."""
_LARGE = 2.0
"""A turn of all workers comes at once without being a burst; one is so many times as long."""
_WORTH_WAITING = 0.05
"""The share of the time that is waited where bursts decide what a block shows."""


@dataclass(frozen=True)
class Bursts:
    """How batches come.

    Attributes:
        batches: Of a burst.
        wait_s: For the first batch of one.
        every_s: From one to the next.
        seen: How many there were; 0: batches come evenly.
    """

    batches: float = 0.0
    wait_s: float = 0.0
    every_s: float = 0.0
    seen: float = 0.0

    @property
    def wanted_s(self) -> float:
        """How long a block is that has some of them."""
        return _OF_A_BLOCK * self.every_s if self.seen >= _FEWEST else 0.0

    def warning(self, longest_s: float, spent_s: float) -> tuple[str, str] | None:
        """Return id and message of a warning where blocks are too short for them.

        Args:
            longest_s: How long a block could be.
            spent_s: Time before the first block.
        """
        wanted_s = _OF_A_BLOCK * self.every_s
        once = self.seen < _FEWEST
        if wanted_s <= longest_s or (once and _OF_A_BLOCK * self.wait_s < longest_s):
            return None
        minutes = math.ceil((spent_s + wanted_s / SHARE) / 60)
        return (
            "bursts",
            f"Batches come in bursts: the job waits {self.wait_s:.2g} s for one, and those after it come at once. "
            f"Blocks of {longest_s:.2g} s hold too few of these waits to say what they cost. "
            f"Give it --budget {minutes}m.",
        )


EVEN = Bursts()


def find_bursts(waits_s: Sequence[float], seconds_per_batch: float, workers: int) -> Bursts:
    """Return how batches come, by what was waited for each of them."""
    waited_s = sum(waits_s)
    if waited_s <= _WORTH_WAITING * len(waits_s) * seconds_per_batch:
        return EVEN
    wait_s = sum(each_s * each_s for each_s in waits_s) / waited_s  # that in which a moment of waiting lies
    seen = waited_s / wait_s
    batches = len(waits_s) / seen
    if batches <= _LARGE * max(1, workers):
        return EVEN
    return Bursts(batches, wait_s, batches * seconds_per_batch, seen)
