"""Visits to the arms of a ladder: each tried out first, repeated if a loop breaks off, and lost if it cannot run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bottleneck.measure.bench import Bench
from bottleneck.measure.explain_errors import job_failures
from bottleneck.measure.ladder import Arm
from bottleneck.measure.ledger import Ledger, describe_arm
from bottleneck.measure.rounds.lost_arms import LostArms
from bottleneck.measure.rounds.schedule import MIN_BLOCK_S, Bursts, Pace, find_bursts
from bottleneck.measure.rounds.turns import Visit
from bottleneck.measure.rounds.visit import Counters, visit
from bottleneck.results.warnings.job import batch_changed_later, loop_breaks_off

_MAX_VISITS = 4
"""Visits for one block in which a script's loop does not break off."""
_TRIED_BATCHES = 8
"""Batches for trying out `raw` without workers."""


class Visits:
    """Runs blocks of arms, and keeps their paces.

    Args:
        bench: Runs the arms.
        ledger: Receives the blocks that are tried out, warnings, and the ladder without lost arms.
        counters: Open during each block.
        left_s: Returns the seconds left for all of the measuring.
    """

    def __init__(self, bench: Bench, ledger: Ledger, counters: Counters, left_s: Callable[[], float]) -> None:
        self._bench = bench
        self._ledger = ledger
        self._counters = counters
        self._left_s = left_s
        self._workers = bench.loader.num_workers
        self._lost_arms = LostArms(bench.loader, ledger, counters.reads)
        self._breaks_stay = False
        """True if the script's loop breaks off so often that a block without it takes too long."""
        self.paces: dict[Arm, Pace] = {}

    def try_out(self, arm: Arm, longest_s: float) -> None:
        """Run an arm for a moment, to measure its pace.

        A batch may be ready in a queue inside the dataset, or be the one for which that is filled; so a loader without
        workers is tried for longer. Workers of a DataLoader are such a queue with a known level.

        Args:
            arm: The arm.
            longest_s: Limit for a loader without workers.
        """
        made = self._run_block(arm, max(1, self._workers) if arm.mode is not None else 2, range(1))
        tried_s, tried = made.block.seconds, made.block.batches
        repeats = arm.mode is not None and not self._workers
        while repeats and tried_s < longest_s and (tried_s < MIN_BLOCK_S or tried < _TRIED_BATCHES):
            made = self._run_block(arm, tried, range(1))
            tried_s, tried = tried_s + made.block.seconds, tried + made.block.batches
        self.paces[arm] = Pace(tried_s / tried, made.preparing_s, tried, self._find_bursts(arm, tried_s / tried))
        block = made.block
        if block.seconds >= MIN_BLOCK_S and not self.paces[arm].bursts.seen:
            # The batches of a slow job are too expensive to drop: this was a block like any other.
            self._ledger.add(arm, block)
            del self._bench.waits_s.get(arm, [])[: -block.batches]  # those of dropped blocks
        else:
            self._bench.waits_s.pop(arm, None)

    def visit(self, arm: Arm, batches: int, rounds: range) -> Visit:
        """Measure a block of an arm for each of some rounds, and update its pace."""
        made = self._run_block(arm, batches, rounds)
        if made.broken and arm in self.paces:
            return made
        seconds_per_batch = made.block.seconds / made.block.batches
        found = self._find_bursts(arm, seconds_per_batch)
        pace = Pace(seconds_per_batch, made.preparing_s, made.block.batches, found)
        self.paces[arm] = self.paces[arm].updated(pace) if arm in self.paces else pace
        return made

    def name(self, arm: Arm) -> str:
        """Return the name of an arm, such as `before_augment (drained)`."""
        return describe_arm(arm, self._ledger.ladder)

    def warn_of_changes(self) -> None:
        """Warn of recorded data that changed while it was served; call it once everything is measured."""
        self._lost_arms.warn_of_changes()

    def _find_bursts(self, arm: Arm, seconds_per_batch: float) -> Bursts:
        return find_bursts(self._bench.waits_s.get(arm, ()), seconds_per_batch, self._workers)

    def _run_block(self, arm: Arm, batches: int, rounds: range) -> Visit:
        were_equal = not self._bench.replays.vary
        with job_failures(self.name(arm), mode=arm.mode):
            made = self._visit_unbroken(arm, batches, rounds)
            self._clone_changed_batches()
        if were_equal and self._bench.replays.vary and not self._bench.replays.vary_rarely:
            # Blocks with the train step had batches of one shape, but now there are others.
            self._ledger.blocks = {arm: blocks for arm, blocks in self._ledger.blocks.items() if not arm.coupled}
        self._ledger.ladder = self._lost_arms.left_of(self._bench.preparer.left_of(self._ledger.ladder))
        return made

    def _visit_unbroken(self, arm: Arm, batches: int, rounds: range) -> Visit:
        """Visit an arm, again if a script ended its epoch or evaluated in the block, which is not a step."""
        pace, tries = self.paces.get(arm), 1
        made = visit(self._bench, arm, rounds.start, batches, self._counters, len(rounds))
        again_s = 0.0 if pace is None else made.preparing_s + batches * pace.seconds_per_batch
        while made.broken and arm.preparation is None and not self._breaks_stay and again_s <= self._left_s():
            self._breaks_stay = self._bench.leaves_out_breaks = tries == _MAX_VISITS
            made = visit(self._bench, arm, rounds.start, batches, self._counters, len(rounds))
            tries += 1
        if made.broken and self._breaks_stay:
            self._ledger.warn(loop_breaks_off())
            return made._replace(broken=False)
        return made

    def _clone_changed_batches(self) -> None:
        """Serve clones if cached batches were changed in place."""
        for cache in {id(c): c for c in (self._bench.host, self._bench.device)}.values():
            if cache.changed_since_probe():
                cache.clone_from_now_on(partial(self._bench.fresh_batch, on_device=cache is self._bench.device))
                self._ledger.warn(batch_changed_later())
