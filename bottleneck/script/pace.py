"""The pace of a loop with its own batches, before it is fed, to compare with the baseline of a tuning."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bottleneck.script.iterators import Source

_MIN_S, _MAX_S = 1.0, 8.0
"""Minimum time over which the pace is measured, and maximum time for its real steps [s]."""
_TURNS, _MIN_STEPS, _USABLE_STEPS = 2, 24, 12
"""Turns of the workers, which deliver in bursts, and steps for a pace; and steps that suffice if more are missing."""
_DRAINED_SHARE = 0.1
"""Maximum decrease of the prefetch queue, as a share of the steps: the loader would be slower than the loop by it."""
_PASS_SHARE, _MIN_PASS = 0.25, 64
"""Maximum share of a pass, as a loop may end after one; and minimum batches of a pass that is long enough."""
_MAX_BREAKS = 2
"""Maximum passes that may begin meanwhile; the loop's work between two of them is not a step."""


class OwnPace:
    """Timer of the real steps of a loop.

    A shrinking prefetch queue hides a slow loader: the timing begins again when the queue is empty.

    Args:
        clock: Monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._source: Source | None = None
        self._asked = self._turn = self._breaks = self._broken = 0
        self._most = self._began_s = 0.0
        self._from: tuple[float, int, int] | None = None
        """Beginning of the timing [s], and the batches requested and ready at that time."""
        self._is_known = False
        self.seconds_per_batch: float | None = None
        """Sustained duration of a step, with its wait for the batch [s]; None if unknown."""

    def is_watching(self, source: Source) -> bool:
        """Return True if steps of a source are timed: nothing else may be done in them."""
        return source is self._source and not self._is_known

    def ask(self, source: Source, breaks: int, ready: int = 0) -> bool:
        """Note that the loop asks for a batch; return True if no further real step is needed.

        Args:
            source: Source of the batch.
            breaks: Number of passes that the loop has begun, over any loader.
            ready: Batches that workers have delivered and the loop has not taken.
        """
        now_s = self._clock()
        if source is not self._source:
            self._begin(source, now_s)
        elif breaks != self._breaks:
            self._broken, self._from = self._broken + 1, None
        self._breaks, self._asked = breaks, self._asked + 1
        self._time(now_s, ready)
        gives_up = self._asked > self._most or self._broken >= _MAX_BREAKS or now_s - self._began_s > _MAX_S
        self._is_known |= gives_up
        return self._is_known

    def _begin(self, source: Source, now_s: float) -> None:
        self._source, self._began_s, self._is_known, self.seconds_per_batch = source, now_s, False, None
        self._from, self._asked, self._broken = None, 0, 0
        self._turn = max(1, source.loader.num_workers)
        try:
            batches = len(source.loader)
        except TypeError:  # a stream, which may be arbitrarily short
            batches = 0
        self._most = _PASS_SHARE * batches if batches >= _MIN_PASS else 0.0

    def _time(self, now_s: float, ready: int) -> None:
        if self._from is None or (ready == 0 and self._from[2] > 0):
            self._from = now_s, self._asked, ready
            return
        began_s, asked, was_ready = self._from
        seconds, steps = now_s - began_s, self._asked - asked
        if steps < _USABLE_STEPS or steps % self._turn or was_ready - ready > _DRAINED_SHARE * steps:
            return
        self.seconds_per_batch = seconds / steps
        self._is_known = steps >= max(_MIN_STEPS, _TURNS * self._turn) and seconds >= _MIN_S
