"""The visits that follow a running start: what confirms a name, and the quick experiments of the ladder.

Each visit has several blocks, one turn of the workers each, that belong to the rounds of the running start: to switch
to an experiment once for each block would take most of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bottleneck.measure.bench import block_batches
from bottleneck.measure.ladder import Arm
from bottleneck.measure.rounds.schedule import MIN_BLOCK_S, MIN_INTERVAL_ROUNDS
from bottleneck.measure.running import whole_turns

LADDER_SHARE = 0.65
"""Share of the budget for visits of the ladder."""
LADDER_VISIT_S = 4.0
"""Seconds of such a visit, at most."""
_NAME_S = 2.4
"""Seconds of the blocks of a visit that confirms a name."""
_NAME_ROUNDS = 3
"""Number of these blocks, a turn of the workers each, at least."""
_QUICK_BLOCK_S = 0.5
"""Seconds of such a block if the train step limits the job without the stage."""
_AS_QUICK = 1.2
"""Multiple of the step's time up to which an experiment is quick, and visited for the ladder alone."""


class LongVisit(NamedTuple):
    """Some blocks of an experiment, one after the other.

    Attributes:
        batches: Batches of each block.
        rounds: Number of blocks.
        seconds: Expected duration, with the switch before it.
    """

    arm: Arm
    batches: int
    rounds: int
    seconds: float


@dataclass(frozen=True)
class Confirming:
    """A plan of visits.

    Attributes:
        expected_s: Seconds per batch of each coupled arm, by the workers' clocks.
        step_s: Seconds per batch of `device`.
        workers: Workers of the loader.
        batches_per_update: Batches of an optimizer step.
        running_rounds: Rounds of the running start.
    """

    expected_s: Mapping[Arm, float]
    step_s: float
    workers: int
    batches_per_update: int
    running_rounds: int

    def of_name(self, arms: Iterable[Arm]) -> Iterator[LongVisit]:
        """Yield a visit to each experiment without a stage that may be the name."""
        for arm in arms:
            seconds = self.expected_s[arm]
            batches = whole_turns(max(1, self.workers), self.batches_per_update)
            if self._is_quick(arm):
                batches = block_batches(arm, seconds, _QUICK_BLOCK_S, 1)
            wanted = max(_NAME_ROUNDS, math.ceil(_NAME_S / (batches * seconds)))
            yield self._visit(arm, batches, min(self.running_rounds, wanted))

    def of_ladder(self, is_visited: Callable[[Arm], bool]) -> Iterator[LongVisit]:
        """Yield a visit to each quick experiment without a block, the quickest first."""
        for arm in sorted(self.expected_s, key=self.expected_s.__getitem__):
            if self._is_quick(arm) and not is_visited(arm):
                yield self._visit(arm, block_batches(arm, self.expected_s[arm], MIN_BLOCK_S, 1), MIN_INTERVAL_ROUNDS)

    def _is_quick(self, arm: Arm) -> bool:
        return self.expected_s[arm] <= _AS_QUICK * self.step_s

    def _visit(self, arm: Arm, batches: int, rounds: int) -> LongVisit:
        seconds = (2 * max(1, self.workers) + rounds * batches) * self.expected_s[arm]
        return LongVisit(arm, batches, rounds, seconds)
