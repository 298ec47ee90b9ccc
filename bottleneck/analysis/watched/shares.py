"""Shares of time from samples, with intervals that account for correlated consecutive samples.

Sources: the integrated autocorrelation time and its window, A. Sokal, 'Monte Carlo Methods in Statistical Mechanics:
Foundations and New Algorithms', 1997, section 3, here corrected for the bias from the mean of a short series; the same
for a two-state Markov chain, which is more accurate for short series; the score interval, E. B. Wilson, 'Probable
Inference, the Law of Succession, and Statistical Inference', 1927, with the effective number of samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist

from bottleneck.results.records import Interval

CONFIDENCE = 0.95
_WINDOW = 5.0
"""Window of the sum of correlations, in autocorrelation times."""
_MAX_LAG = 1 / 3
"""Maximum lag as a share of the series: correlations over longer times are unknown."""
_UNSEEN = 0.5
"""Changes that are added to the observed ones in each direction (Jeffreys' prior)."""


def share_of(flags: Sequence[bool]) -> Interval:
    """Return the share of true samples; without samples, an interval from 0 to 1."""
    if not flags:
        return Interval(0.0, 0.0, 1.0)
    share = sum(flags) / len(flags)
    independent = len(flags) / max(1.0, _by_correlations(flags), _by_changes(flags))
    z2 = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) ** 2
    middle = (share + z2 / (2 * independent)) / (1 + z2 / independent)
    spread = share * (1 - share) / independent + z2 / (4 * independent * independent)
    half = math.sqrt(z2 * spread) / (1 + z2 / independent)
    return Interval(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))


def _by_correlations(flags: Sequence[bool]) -> float:
    """Return the number of samples that equal an independent one, from the correlations of the series."""
    count, mean = len(flags), sum(flags) / len(flags)
    deviations = [flag - mean for flag in flags]
    variance = sum(one * one for one in deviations) / count
    total = corrected = 1.0
    for lag in range(1, int(_MAX_LAG * count) if variance else 0):
        products = sum(one * other for one, other in zip(deviations, deviations[lag:], strict=False))
        total += 2 * products / (count * variance)
        corrected = total / (1 - (2 * lag + 1) / count)
        if lag >= _WINDOW * corrected:
            break
    return corrected


def _by_changes(flags: Sequence[bool]) -> float:
    """Return the same number for a series in which each sample depends only on the previous one."""
    ups = sum(before < after for before, after in pairwise(flags))
    downs = sum(before > after for before, after in pairwise(flags))
    on = sum(flags[:-1])
    off = len(flags) - 1 - on
    stays = 1 - (ups + _UNSEEN) / (off + 2 * _UNSEEN) - (downs + _UNSEEN) / (on + 2 * _UNSEEN)
    return (1 + stays) / (1 - stays)
