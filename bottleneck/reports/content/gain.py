"""What every format says of the gain that a piece of advice promises."""

from __future__ import annotations

from bottleneck.analysis.advice.promise import claims_at_most
from bottleneck.reports import numbers
from bottleneck.results import format as plain
from bottleneck.results.records import Advice


def expected_gain(advice: Advice) -> str:
    """The gain to be expected and what it rests on, as one sentence; empty where none is claimed."""
    gain = advice.gain
    if gain is None or not abs(gain.estimate) < numbers.LARGEST:
        return ""
    if advice.gain_basis == "measured" and gain.estimate <= 1:
        return f"Gain: none was measured, {numbers.gain_interval(gain)} at most."
    if advice.gain_basis == "measured":
        return f"Gain: at most {numbers.gain_interval(gain)}, a measured upper bound."
    if claims_at_most(advice):
        return f"Gain: up to {plain.gain(gain.estimate)}, an estimate."
    return f"Gain: about {numbers.gain_interval(gain)}, an estimate."
