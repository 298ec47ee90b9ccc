"""Two plain loops in turn, so that both meet the machine in the same state: what a change really gains."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.observer import PlainLoop, mean_ratio
from bottleneck.results.records import Interval

PAIRS, PAIRS_QUICK = 8, 3
_MAX_TIMES = 3
"""As many pairs there are on a busy machine."""
BLOCK_S = 3.0
_QUEUES_A_BLOCK = 4


@dataclass(frozen=True)
class Realised:
    """The gain of a change: the throughput with it over that without, in pairs of blocks."""

    ratios: tuple[float, ...]

    @property
    def gain(self) -> Interval:
        """The mean with its 95 % interval."""
        return mean_ratio(self.ratios)


def realise(
    before: dict[str, Any],
    after: dict[str, Any],
    *,
    pairs: int = PAIRS,
    block_s: float = BLOCK_S,
    half_width: float = math.inf,
    earlier: Sequence[float] = (),
) -> Realised:
    """Alternate blocks of two plain loops.

    Args:
        before: Fields of the unchanged job.
        after: Fields of the changed job; a batch of either has the same number of samples.
        pairs: How many at least, each loop being the first in every other one.
        block_s: About how long a block takes; it has four queues at least.
        half_width: Of the interval of the gain: while it is wider there are more pairs, up to three times as many.
        earlier: Ratios of pairs that were taken before, of which the gain is one too.
    """
    loops = [PlainLoop(fields) for fields in (before, after)]
    try:
        batches = [batches_of_block(loop, fields, block_s) for loop, fields in zip(loops, (before, after), strict=True)]
        return enough_of(itertools.chain(earlier, _ratios(loops, batches)), len(earlier) + pairs, half_width)
    finally:
        loops.clear()


def enough_of(ratios: Iterator[float], pairs: int, half_width: float) -> Realised:
    """So many ratios, and more of them while their mean is not known as precisely as it has to be."""
    found = list(itertools.islice(ratios, pairs))
    while len(found) < _MAX_TIMES * pairs:
        gain = mean_ratio(found)
        if (gain.high - gain.low) / 2 <= half_width:
            break
        found.append(next(ratios))
    return Realised(tuple(found))


def batches_of_block(loop: PlainLoop, fields: dict[str, Any], block_s: float) -> int:
    """Return the number of batches for a block: whole turns of the workers."""
    workers = max(1, int(fields["num_workers"]))
    pace_s = loop.run_block(2 * workers).seconds_per_batch
    queues = _QUEUES_A_BLOCK * workers * (fields.get("prefetch_factor") or 2)
    return workers * round(max(block_s / pace_s, queues if fields["num_workers"] else 1) / workers + 0.5)


def _ratios(loops: list[PlainLoop], batches: list[int]) -> Iterator[float]:
    for first in itertools.cycle((0, 1)):
        paces = [0.0, 0.0]
        for which in (first, 1 - first):
            paces[which] = loops[which].run_block(batches[which]).seconds_per_batch
        yield paces[0] / paces[1]
