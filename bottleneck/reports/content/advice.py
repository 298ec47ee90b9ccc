"""What to do next, and what it would bring."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.promise import claims_at_most
from bottleneck.reports.document import Section, Step, Steps
from bottleneck.results.format import gain, gain_interval, known
from bottleneck.results.records import Advice, Result


def expected_gain(advice: Advice) -> str:
    """The gain to be expected and what it rests on, as one sentence; empty where none is claimed."""
    expected = advice.gain
    if expected is None or not known(expected.estimate):
        return ""
    if advice.gain_basis == "measured" and expected.estimate <= 1:
        return f"Gain: none was measured, {gain_interval(expected)} at most."
    if advice.gain_basis == "measured":
        return f"Gain: at most {gain_interval(expected)}, a measured upper bound."
    if claims_at_most(advice):
        return f"Gain: up to {gain(expected.estimate)}, an estimate."
    return f"Gain: about {gain_interval(expected)}, an estimate."


def advice(result: Result) -> Iterator[Section]:
    """All pieces of advice."""
    steps = (Step(item.title, f"{item.why} {expected_gain(item)}".rstrip(), item.how) for item in result.advice)
    yield Section("What to do next", (Steps(tuple(steps)),))


def first_advice(result: Result) -> Iterator[Section]:
    """The first piece in short, to be read without a click."""
    steps = (Step(f"Next: {item.title}", expected_gain(item), item.how) for item in result.advice[:1])
    yield Section("", (Steps(tuple(steps)),), folded=False)
