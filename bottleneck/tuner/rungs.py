"""The ladder of a tuning: kept changes, rung by rung, measured in turns until their gains are known well enough.

A change is kept at its luckiest moment, so each rung is measured again, which costs most if the original job is slow.
Two cases need no second measurement: if nothing was kept, every pair already measured the original job; and the pairs
of a single change that gained far more than noise can explain are rounds of the ladder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from bottleneck.analysis.statistics import jackknife, ratio, series
from bottleneck.results.records import Block
from bottleneck.results.tuning import Pair
from bottleneck.tuner.change import Settings
from bottleneck.tuner.judging import is_far_faster
from bottleneck.tuner.lanes import Lanes

MIN_ROUNDS = 4
MAX_ROUNDS = 10
_FEW_ROUNDS = 3
"""Minimum rounds if one is long, and for the original job if nothing was kept."""
_LONG_ROUND_S = 10.0
_USEFUL = 0.1
"""Half width of an interval over its estimate, below which a narrower one would not change a decision."""


class Rungs:
    """Measures the rungs of a ladder.

    Args:
        lanes: Variants of the job.
        left_s: Returns the time left for blocks.
    """

    def __init__(self, lanes: Lanes, left_s: Callable[[], float]) -> None:
        self._lanes = lanes
        self._left_s = left_s
        self._pairs: dict[tuple[Settings, Settings, bool], list[Pair]] = {}

    def note(self, base: Settings, changed: Settings, pairs: Sequence[Pair], *, whole_epochs: bool) -> None:
        """Keep the pairs of a change, with which a ladder may begin."""
        self._pairs[base, changed, whole_epochs] = list(pairs)

    def cost_s(self, rungs: Sequence[Settings], best: Settings, epoch_s: float | None) -> float:
        """Return the minimum seconds for measuring these rungs, and one more that an attempt may add.

        Args:
            rungs: Settings from the original job to the best.
            best: The best, whose lane and that of the attempt are already running; other lanes are started, and their
                first block shows how long one is.
            epoch_s: Duration of an epoch if whole ones are measured.
        """
        visits_s = {rung: self._lanes.visit_s(rung, epoch_s) for rung in rungs}
        starts_s = [self._lanes.start_s(rung, whole_epochs=epoch_s is not None) for rung in rungs if rung != best]
        first_s = [visits_s[rung] for rung in rungs if rung != best]
        return sum((*starts_s, *first_s)) + MIN_ROUNDS * sum((*visits_s.values(), visits_s[best]))

    def measure(self, rungs: Sequence[Settings], epoch_s: float | None) -> tuple[list[Block], ...]:
        """Return the blocks of each rung, by rounds; no lane is open afterwards.

        Raises:
            Exception: A rung does not run, for any reason.
        """
        whole = epoch_s is not None
        blocks = self._known(rungs, whole_epochs=whole)
        if not self._is_enough(rungs, blocks, epoch_s):
            self._lanes.keep(*rungs, whole_epochs=whole)
            turns = self._lanes.in_turns(*rungs, whole_epochs=whole, known=blocks)
            while not self._is_enough(rungs, blocks, epoch_s):
                blocks = next(turns)
        self._lanes.keep()
        return blocks

    def _known(self, rungs: Sequence[Settings], *, whole_epochs: bool) -> tuple[list[Block], ...]:
        """Return the blocks with which a ladder begins."""
        if len(rungs) == 1:
            return ([pair.base for key, pairs in self._pairs.items() if key[::2] == (*rungs, False) for pair in pairs],)
        pairs = self._pairs.get((*rungs, whole_epochs), []) if len(rungs) == 2 else []  # type: ignore[arg-type]
        if not pairs or not is_far_faster(pairs):
            return tuple([] for _ in rungs)
        return [pair.base for pair in pairs], [pair.changed for pair in pairs]

    def _is_enough(self, rungs: Sequence[Settings], blocks: Sequence[Sequence[Block]], epoch_s: float | None) -> bool:
        done, round_s = len(blocks[0]), sum(self._lanes.visit_s(rung, epoch_s) for rung in rungs)
        if done < (_FEW_ROUNDS if len(rungs) == 1 or round_s > _LONG_ROUND_S else MIN_ROUNDS):
            return False
        return done >= MAX_ROUNDS or is_useful(blocks) or self._left_s() < round_s


def is_useful(blocks: Sequence[Sequence[Block]]) -> bool:
    """Return True if the blocks of a ladder's rungs suffice to act on.

    Each rung is faster than the one before at a confidence of 95 %; its gain, and the total gain, are known to a tenth.
    A single rung has no gain: its throughput is known to a tenth.
    """
    measured = [series(each) for each in blocks]
    if len(measured) == 1:
        spread = jackknife(lambda pace_s: 1 / pace_s, measured)
        return spread is not None and spread.half_width() <= _USEFUL * spread.estimate
    steps = [ratio(*pair) for pair in pairwise(measured)]
    total = ratio(measured[0], measured[-1])
    is_sure = all(step is not None and step.low > 1 for step in steps)
    return is_sure and all(
        gain is not None and gain.high - gain.low <= 2 * _USEFUL * gain.estimate for gain in (*steps, total)
    )


def confirmed_rungs(blocks: Sequence[Sequence[Block]]) -> int:
    """Return the number of rungs to keep: up to the last that is clearly faster than the first, the original job."""
    measured = [series(each) for each in blocks]
    totals = [ratio(measured[0], each) for each in measured[1:]]
    sure = [at for at, total in enumerate(totals, 1) if total is not None and total.low > 1]
    return 1 + max(sure, default=0)
