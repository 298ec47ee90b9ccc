"""What pairs of blocks say of a change: surely worth it, surely not, or not known yet.

Blocks of a pair are seconds apart, so that what the machine does meanwhile cancels in their ratio. It is looked at a
few times only, and strictly: each look is a chance to be fooled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bottleneck.analysis.estimates.statistics import FloatArray, mean_spread
from bottleneck.results.records import Block, Interval
from bottleneck.results.tuning import Outcome, Pair

WORTH = 1.02
"""The factor of throughput that a change has to gain, surely, to be kept."""
FEWEST_PAIRS, MOST_PAIRS = 4, 16
LOOKS = (4, 6, 8, 10, 13, MOST_PAIRS)
_SURELY = 0.99
"""Confidence of what is kept."""
_HARDLY = 0.9
"""Confidence of what is dropped: to lose a change costs its gain only."""
_HOPELESS = 0.85
"""The factor from which on two pairs settle it."""


def log_gains(pairs: Sequence[Pair]) -> FloatArray:
    """The logarithm of the factor of throughput, pair by pair."""
    return np.array([math.log(_pace_s(pair.base) / _pace_s(pair.changed)) for pair in pairs])


def _pace_s(block: Block) -> float:
    return max(block.seconds, 1e-9) / max(block.samples, 1)


def gain(pairs: Sequence[Pair]) -> Interval | None:
    """The factor of throughput with its 95 % interval; None with fewer than two pairs."""
    return mean_spread(log_gains(pairs)).exponentiated() if len(pairs) > 1 else None


def judge(pairs: Sequence[Pair], *, most_pairs: int = MOST_PAIRS) -> Outcome | None:
    """Whether a change is kept or dropped, or undecided after the most pairs; None while it takes more of them."""
    gains = log_gains(pairs)
    if len(gains) >= 2 and gains.max() < math.log(_HOPELESS):
        return "dropped"
    last = len(gains) >= most_pairs
    if len(gains) < 2 or (len(gains) not in LOOKS and not last):
        return None
    spread = mean_spread(gains)
    if len(gains) >= FEWEST_PAIRS and spread.interval(_SURELY).low > math.log(WORTH):
        return "kept"
    if spread.interval(_HARDLY).high < math.log(WORTH):
        return "dropped"
    return "undecided" if last else None
