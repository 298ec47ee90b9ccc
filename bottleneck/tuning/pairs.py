"""What pairs of blocks say of a change: surely worth it, surely not, or not known yet.

Blocks of a pair are seconds apart, so that what else the machine does cancels in their ratio, unless it hits one
of the two: the mean is trimmed by a fifth at each end, with the interval of Tukey and McLaughlin (1963). What was kept
is measured again with all that it does, stalls included, when the ladder is. It is looked at a few times only, and
strictly: each look is a chance to be fooled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from bottleneck.analysis.estimates.statistics import FloatArray
from bottleneck.results.records import Block, Interval
from bottleneck.results.tuning import Outcome, Pair

WORTH = 1.02
"""The factor of throughput that a change has to gain, surely, to be kept."""
FEWEST_PAIRS, MOST_PAIRS = 4, 24
_LOOKS = (4, 6, 8, 10, 13, 16, 20)
_SURELY = 0.99
"""Confidence of what is kept."""
_HARDLY = 0.9
"""Confidence of what is dropped: to lose a change costs its gain only."""
_FEW_PAIRS, _HOPELESS = 3, 0.85
"""Where no pair has a larger factor, fewer pairs settle it."""
_TRIMMED = 0.2
_WIDEST = 50.0
"""Of a logarithm: two pairs that disagree have an interval over many orders of magnitude."""


def log_gains(pairs: Sequence[Pair]) -> FloatArray:
    """The logarithm of the factor of throughput, pair by pair."""
    return np.array([math.log(_pace_s(pair.base) / _pace_s(pair.changed)) for pair in pairs])


def _pace_s(block: Block) -> float:
    return max(block.seconds, 1e-9) / max(block.samples, 1)


def gain(pairs: Sequence[Pair]) -> Interval | None:
    """The factor of throughput with its 95 % interval; None with fewer than two pairs."""
    if len(pairs) < 2:
        return None
    found = _mean(log_gains(pairs), 0.95)
    return Interval(*(math.exp(min(_WIDEST, max(-_WIDEST, v))) for v in (found.estimate, found.low, found.high)))


def _mean(gains: FloatArray, confidence: float) -> Interval:
    """The trimmed mean; with fewer than five values nothing is trimmed.

    The same as scipy.stats.mstats.trimmed_mean_ci, whose import takes long and adds a filter to the process's warnings.
    """
    count, cut = len(gains), int(_TRIMMED * len(gains))
    kept = np.sort(gains)[cut : count - cut]
    mean = float(kept.mean())
    # Winsorized: each value that was cut counts as the nearest that was kept.
    winsorized = np.concatenate([np.repeat(kept[0], cut), kept, np.repeat(kept[-1], cut)])
    error = float(winsorized.std(ddof=1)) / ((1 - 2 * _TRIMMED) * math.sqrt(count))
    away = float(stdtrit(len(kept) - 1, (1 + confidence) / 2)) * error
    return Interval(mean, mean - away, mean + away)


def judge(pairs: Sequence[Pair], *, most_pairs: int = MOST_PAIRS) -> Outcome | None:
    """Whether a change is kept or dropped, or undecided after the most pairs; None while it takes more of them."""
    gains = log_gains(pairs)
    if len(gains) == _FEW_PAIRS and gains.max() < math.log(_HOPELESS) and _surely_not(gains):
        return "dropped"
    last = len(gains) >= most_pairs
    if len(gains) < FEWEST_PAIRS or (len(gains) not in _LOOKS and not last):
        return None
    if _mean(gains, _SURELY).low > math.log(WORTH):
        return "kept"
    if _surely_not(gains):
        return "dropped"
    return "undecided" if last else None


def _surely_not(gains: FloatArray) -> bool:
    return _mean(gains, _HARDLY).high < math.log(WORTH)
