"""What a piece of advice promises."""

from __future__ import annotations

from bottleneck.results.records import Advice


def claims_at_most(advice: Advice) -> bool:
    """Whether a gain is given as an upper bound: that of a stage if free, or an estimate from 1 upwards."""
    gain = advice.gain
    if gain is None:
        return False
    return advice.gain_basis == "measured" or (gain.low == 1.0 and gain.high == gain.estimate)
