"""Garbage collections of Python while batches are made."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_MANY_BLOCKS = 2_000_000
"""A process that has only imported what trains holds some 700,000."""
_OLD = 1 if sys.version_info[:2] == (3, 14) else 2
"""The youngest generation whose collections go through objects that have lived for long: in 3.14 through some."""


@dataclass
class Collections:
    """Garbage collections of Python's, of all objects, while batches are made.

    Attributes:
        count: How many.
        shortest_s: What one takes: the first copies the pages that a forked process shares.
        objects: What they go through; 0: there was none. To count them touches each, as a collection does.
        blocks: Pieces of memory that Python holds for objects, which takes no time to know.
    """

    count: int = 0
    shortest_s: float = math.inf
    objects: int = 0
    blocks: int = 0

    def add(self, other: Collections) -> None:
        self.count += other.count
        self.shortest_s = min(self.shortest_s, other.shortest_s)
        self.objects = max(self.objects, other.objects)
        self.blocks = max(self.blocks, other.blocks)

    @property
    def missing(self) -> bool:
        """True if one takes long, because there are many objects, and none was seen."""
        return self.blocks > _MANY_BLOCKS and not self.count


class CollectionWatch:
    """Times garbage collections of all objects of this process between `start` and `stop`.

    Args:
        see: Called after each with the seconds that it took.
    """

    def __init__(self, see: Callable[[float], None], clock: Callable[[], float] = time.perf_counter) -> None:
        self._see = see
        self._clock = clock
        self._began_s = 0.0

    def start(self) -> None:
        self.stop()
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        with suppress(ValueError):
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] >= _OLD and phase == "start":
            self._began_s = self._clock()
        elif info["generation"] >= _OLD:
            self._see(self._clock() - self._began_s)


class CollectionCount:
    """Counts them while everything is real, by Python's own counter: nothing runs but at a switch of the mode."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begun: tuple[int, float] | None = None
        self.count = 0
        self.seconds = 0.0

    def switch(self, *, real: bool) -> None:
        now = sum(generation["collections"] for generation in gc.get_stats()[_OLD:]), self._clock()
        if self._begun is not None:
            self.count = self.count + now[0] - self._begun[0]
            self.seconds = self.seconds + now[1] - self._begun[1]
        self._begun = now if real else None
