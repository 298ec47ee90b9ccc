"""Next steps with their gains, and facts that cannot be changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bottleneck.analysis.edits.edits import Edit, claims_at_most, edit_of, is_fact, place_of, proof_of, why_unproven
from bottleneck.analysis.edits.patch import note_on
from bottleneck.reports.document import Items, Paragraph, Section, Step, Steps
from bottleneck.results.format import gain, gain_interval, known
from bottleneck.results.records import Advice, Interval, Result

MAX_IN_SHORT = 3
"""Pieces of advice in a short report."""


def expected_gain(advice: Advice) -> str:
    """Return the expected gain and its basis, as one sentence; empty if none is claimed."""
    expected = advice.gain
    if expected is None or not known(expected.estimate):
        return ""
    if advice.gain_basis == "measured" and (expected.estimate <= 1 or expected.low < 1):
        return "Gain: not measured precisely enough."
    if advice.gain_basis == "measured" and not claims_at_most(advice):
        return f"Gain: about {gain_interval(expected)}, measured in a trial."
    if advice.gain_basis == "measured":
        return f"Gain: at most {gain_interval(expected)}, a measured upper bound."
    if claims_at_most(advice):
        return f"Gain: up to {gain(expected.estimate)}, an estimate."
    return f"Gain: about {gain_interval(expected)}, an estimate."


def _short_gain(advice: Advice) -> str:
    expected = advice.gain
    if expected is None or not known(expected.estimate) or expected.estimate <= 1 or expected.low < 1:
        return ""
    return f", up to {gain(expected.estimate)}" if claims_at_most(advice) else f", about {gain(expected.estimate)}"


def promise_of(expected: Interval | None, diagnosed: Result | None) -> str:
    """Return the gain that the advice of a diagnosis promised for a change; empty if it promised none."""
    if expected is None or not known(expected.estimate):
        return ""
    at_most = expected.low == 1.0 and expected.high == expected.estimate
    given = diagnosed.advice if diagnosed is not None else ()
    if at_most or any(item.gain == expected and claims_at_most(item) for item in given):
        return f"up to {gain(expected.estimate)}"
    return gain_interval(expected)


def first_in_words(result: Result) -> str:
    """Return the first piece in a line; empty if nothing is advised."""
    steps = [_title_only(result, item) for item in _fixes(result)[:1]]
    return "".join(f"{step.title}{f' ({step.place})' if step.place else ''}." for step in steps)


def advice(result: Result) -> Iterator[Section]:
    """Yield all pieces of advice, and the facts."""
    steps = tuple(_step(result, item, in_full=True) for item in _fixes(result))
    facts = tuple(f"{fact.title}. {fact.why}" for fact in _facts(result))
    yield Section("Facts", (Items(facts, on=("verbose", "html")),))
    yield Section("What to do next", (Items(facts, on=("markdown",)), Steps(steps)))


def short_advice(result: Result) -> Iterator[Section]:
    """Yield the first pieces, the first of them with its edit, and the facts in short."""
    fixes = _fixes(result)
    first, others = fixes[:1], fixes[1:MAX_IN_SHORT]
    steps = [_step(result, item) for item in first] + [_title_only(result, item) for item in others]
    facts = Items(tuple(f"{fact.title}." for fact in _facts(result)))
    yield Section("", (facts,), folded=False)
    proof = proof_of(result, fixes[:MAX_IN_SHORT])
    proven = Paragraph(f"Prove it: {proof}" if proof else "", "small")
    yield Section("", (Steps(tuple(steps)), proven), folded=False)


def left_out_of_short(result: Result) -> int:
    """Return the number of fixes for which a short report has no room."""
    return len(_fixes(result)[MAX_IN_SHORT:])


def first_advice(result: Result) -> Iterator[Section]:
    """Yield the first piece, to be read without a click."""
    steps = tuple(replace(_step(result, item), proof=proof_of(result, [item])) for item in _fixes(result)[:1])
    yield Section("", (Steps(steps),), folded=False)


def _fixes(result: Result) -> Sequence[Advice]:
    return [item for item in result.advice if not is_fact(item)]


def _facts(result: Result) -> Sequence[Advice]:
    return [item for item in result.advice if is_fact(item)]


def _edit(result: Result, item: Advice) -> Edit | None:
    return edit_of(item, result.pipeline, result.evidence)


def _step(result: Result, item: Advice, *, in_full: bool = False) -> Step:
    """Return a piece of advice; without an edit, its remedy is given in words."""
    edit, promised = _edit(result, item), expected_gain(item)
    noted = note_on(edit.parts) if edit is not None else ""
    told = " ".join(filter(None, (item.why, promised, noted, why_unproven(result, item)))) if in_full else noted
    proof = proof_of(result, [item]) if in_full else ""
    title = item.title if in_full else f"{item.title}{_short_gain(item)}"
    if edit is None:
        end = "" if item.how.endswith((".", "!", "?")) else "."
        how = f"How: {item.how}{end}" if item.how else ""
        return Step(title, f"{told} {how}".strip(), place=place_of(item, result.evidence), proof=proof)
    place = edit.place or place_of(item, result.evidence)
    return Step(title, told, edit.lines, place, edit.is_diff, proof)


def _title_only(result: Result, item: Advice) -> Step:
    edit = _edit(result, item)
    place = (edit.place if edit is not None else "") or place_of(item, result.evidence)
    return Step(f"{item.title}{_short_gain(item)}", "", place=place)
