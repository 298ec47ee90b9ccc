"""Pacing of a visit: steps that warm up an arm, settle it, and end its block."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from bottleneck.measure.rounds.steady import SteadyState

if TYPE_CHECKING:
    from bottleneck.measure.bench import Bench
    from bottleneck.measure.ladder import Arm

_WARM_UP_S = 0.5
"""Maximum warm-up time of the loader alone, so that a slow loader does not spend the budget on it."""


class Pacing:
    """Pacing of a single process: it warms up until its queue is back at its level, and ends a block at that level.

    Args:
        bench: Runs the batches.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.steady = self._make_steady()
        """Levels of the queue."""
        self._batches_are_quick = True
        """True if the loader alone warmed up quickly."""

    def _make_steady(self) -> SteadyState:
        bench = self._bench
        return SteadyState(bench.loader, bench.clock, bench.pause, bench.steps_ahead)

    def begin_visit(self, arm: Arm, round_: int, batches: int) -> None:
        """Prepare for a visit; other ranks, if any, must learn of it."""

    def end_visit(self, arm: Arm) -> None:
        """Finish a visit whose counters have been read; other ranks may still be in it."""

    def prepare(self, arm: Arm) -> None:
        """Switch to an arm, drain the batches in flight from the loader, and run until steady."""
        bench = self._bench
        if arm.mode is None:
            bench.switch(None)
            self._warm_up_device(arm)
            return
        bench.preparer.prepare_for(arm)
        bench.switch(arm.mode)
        if not arm.queued:
            self._warm_up_loader(arm)
            return
        self.steady.reach(arm, partial(bench.run_waiting, arm), bench.step_s)
        if bench.loop.has_queue:
            self._warm_up_device(arm)

    def _warm_up_device(self, arm: Arm) -> None:
        bench = self._bench
        started = bench.clock()
        bench.run_batch(arm, [])
        while bench.clock() - started < bench.device_warm_up_s:
            bench.run_batch(arm, [])
            bench.synchronize()

    def _warm_up_loader(self, arm: Arm) -> None:
        """Run until each worker has begun its second batch, if that is quick."""
        bench = self._bench
        started = bench.clock()
        bench.run_batch(arm, [])  # comes late: it was asked for after the switch
        for _ in range(max(2, bench.loader.num_workers) - 1):
            if bench.clock() - started > _WARM_UP_S:
                break
            bench.run_batch(arm, [])
        self._batches_are_quick = bench.clock() - started <= _WARM_UP_S

    def settle(self, arm: Arm) -> int:
        """Run one more batch before a block, so that it begins right after a batch, as it ends; return the samples.

        Work since `prepare`, such as opening counters, gave the workers a head start, which would shorten the block;
        waiting for this batch uses it up. For slow batches that the job waits for, the head start is negligible, and
        a block with a preparation has no batches to spare for it.
        """
        if arm.mode is None or arm.preparation is not None:
            return 0
        if self.steady.has_slow_batches if arm.coupled else not self._batches_are_quick:
            return 0
        return self._bench.run_batch(arm, [])

    def length(self, arm: Arm, batches: int) -> int:
        """Return the minimum length of a block, given the wanted one.

        If the caches replay batches that differ, each of them is used equally often.
        """
        bench = self._bench
        if not bench.replays.vary or arm.mode is not None:
            return batches
        return len(bench.device) * math.ceil(batches / len(bench.device))

    def can_leave_out(self, arm: Arm) -> bool:
        """Return True if single steps of a script can be timed and left out, which needs a synchronous device."""
        bench = self._bench
        is_alone = bench.split_blocks and not bench.loop.has_queue and bench.loop.batches_ahead == 1
        return bench.leaves_out_breaks and is_alone and arm.coupled
