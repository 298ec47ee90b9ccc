"""How long the job waits for its batches: percentiles, stalls, and whether the stalls come at a regular distance.

Stalls are found here and not in the analysis: whether more batches have to be timed depends on them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

# The tail of the binomial distribution behind scipy.stats.binom.sf, without the import time of scipy.stats.
from scipy.special import bdtrc

from bottleneck.results.evidence import Stalls, Waits
from bottleneck.results.records import Block

WATCH_S, WATCH_SHARE = 3.0, 0.05
"""How long stalls are watched, at most, and as a share of the budget; it comes on top of that."""
_WORTH_WATCHING = 0.02
"""The part of the time that stalls have to take for that."""
_FAR = 6.0
"""Standard deviations over the usual wait from which on a wait is a stall."""
_SCALE_OF_MAD = 1.4826
"""Turns a median absolute deviation into the standard deviation of a normal distribution."""
_SHARE_OF_STEP = 0.25
"""A stall lasts at least this part of a step longer than usual."""
_SHORTEST_S = 1e-3
"""Taking a batch from a queue alone varies by about that."""
_FEWEST_TURNS = 8
"""Turns of the workers that it takes to know the usual wait."""
_FEWEST_GAPS = 4
"""Distances between stalls that it takes to know a period."""
_TOLERANCE = 0.1
"""How far a distance may be from the period, as a part of it; a batch at least is allowed beyond short ones."""
_CHANCE = 0.01
"""Chance of seeing as regular stalls where there is no period, over all periods that were looked for."""


def summarise_waits(waits_s: Iterable[float]) -> Waits:
    """Return count, mean, percentiles and maximum, in seconds, of how long the job waited for each batch."""
    values = np.asarray(list(waits_s), dtype=float)
    p50, p95, p99 = np.percentile(values, [50, 95, 99]).tolist()
    return Waits(p50=p50, p95=p95, p99=p99, max=float(values.max()), count=values.size, mean=float(values.mean()))


def find_stalls(blocks: Sequence[Sequence[float]], seconds: float, workers: int) -> Stalls | None:
    """Find waits that are far over the usual one.

    Workers deliver in bursts: where the loader is the slower part, one batch of each turn of all workers is waited
    for, and the others come at once. That is no stall. So the usual wait is the longest one of a turn, its median
    over turns, and its spread their median absolute deviation.

    Args:
        blocks: The waits of each block, batch after batch [s].
        seconds: What the blocks took together [s].
        workers: Workers of the loader; 0 counts as 1.

    Returns:
        `period_batches` and `period_s` are None where they come at no regular distance or there are too few. None
        where there are too few batches to know what is usual.
    """
    turn = max(1, workers)
    longest = [max(block[at : at + turn]) for block in blocks for at in range(0, len(block) - turn + 1, turn)]
    batches = sum(len(block) for block in blocks)
    if len(longest) < _FEWEST_TURNS or seconds <= 0:
        return None
    usual_s = float(np.median(longest))
    spread_s = _SCALE_OF_MAD * float(np.median(np.abs(np.asarray(longest) - usual_s)))
    step_s = seconds / batches
    threshold_s = usual_s + max(_FAR * spread_s, _SHARE_OF_STEP * step_s, _SHORTEST_S)
    positions = [[at for at, wait in enumerate(block) if wait > threshold_s] for block in blocks]
    lost_s = sum(wait - usual_s for block in blocks for wait in block if wait > threshold_s)
    period = find_period(positions, batches)
    return Stalls(
        count=sum(len(found) for found in positions),
        threshold_s=threshold_s,
        lost_share=min(1.0, lost_s / seconds),
        period_batches=period,
        period_s=None if period is None else period * step_s,
    )


def worth_watching(stalls: Stalls) -> bool:
    """Whether stalls cost enough to time more batches for their period, which is not known."""
    return stalls.period_batches is None and (stalls.lost_share or 0.0) >= _WORTH_WATCHING


def find_period(positions: Sequence[Sequence[int]], batches: int) -> int | None:
    """Return the distance in batches at which stalls come again and again; None where there is none.

    Were each batch a stall by chance, with the same probability q, the distances would be geometric: a distance
    from a to b has the probability (1 - q)^(a - 1) - (1 - q)^b. There is a period where more distances lie near one
    value than that explains (a binomial test, Bonferroni over the values that were tried).

    Args:
        positions: The stalls of each block, as numbers of batches in it.
        batches: Batches in all blocks together.
    """
    gaps = np.concatenate([np.diff(found) for found in positions if len(found)] or [np.array([], dtype=int)])
    if len(gaps) < _FEWEST_GAPS:
        return None
    rate = sum(len(found) for found in positions) / batches
    candidates = [int(value) for value in np.unique(gaps) if value > 1]
    best: tuple[float, int] | None = None
    for period in candidates:
        slack = int(_TOLERANCE * period)
        near = int(np.count_nonzero(np.abs(gaps - period) <= slack))
        if near <= len(gaps) / 2:  # most of them have to keep the distance
            continue
        by_chance = (1 - rate) ** (period - slack - 1) - (1 - rate) ** (period + slack)
        chance = len(candidates) * float(bdtrc(near - 1, len(gaps), by_chance))
        if chance < _CHANCE and (best is None or chance < best[0]):
            best = chance, period
    return None if best is None else best[1]


def describe_waits(waits_s: Sequence[float], blocks: Sequence[Block], workers: int) -> tuple[Waits, Stalls]:
    """Return the evidence on waits, and on stalls where there were batches enough.

    Args:
        waits_s: The wait for each batch of some blocks, in order [s]; at least one.
        blocks: The blocks.
        workers: Workers of the loader.
    """
    ends = list(itertools.accumulate(block.batches for block in blocks))
    if not ends or ends[-1] != len(waits_s):
        return summarise_waits(waits_s), Stalls()  # ended in the middle of a block
    parts = [waits_s[end - block.batches : end] for end, block in zip(ends, blocks, strict=True)]
    stalls = find_stalls(parts, sum(block.seconds for block in blocks), workers)
    return summarise_waits(waits_s), stalls or Stalls()
