"""The time that full garbage collections take of the main process.

Batches of many Python objects bring one about every few batches, which then takes as long as several of them. A block
of a few batches has one or has none, and would differ by that from the next; so its share is noted with each block, for
the analysis to spread over all of them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

_FULL = 2
"""The generation that holds all objects."""


class FullCollections:
    """Sums the time of full collections while it is entered."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_s = 0.0
        self._seconds = self._before_s = 0.0

    def __enter__(self) -> FullCollections:
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)

    def begin_block(self) -> None:
        self._before_s = self._seconds

    def end_block(self) -> float:
        """Return the seconds since the beginning of the block."""
        return self._seconds - self._before_s

    def _note(self, phase: str, info: Mapping[str, Any]) -> None:
        if info["generation"] == _FULL:
            if phase == "start":
                self._began_s = self._clock()
            else:
                self._seconds += self._clock() - self._began_s
