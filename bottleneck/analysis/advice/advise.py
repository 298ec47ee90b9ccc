"""What to change first: each item rests on numbers of this run, and an edit with a gain goes before what has none."""

from __future__ import annotations

from collections.abc import Sequence

from bottleneck.analysis.advice import (
    amplified,
    causes,
    cores,
    device,
    lines,
    loop,
    many_ranks,
    samples,
    stages,
    transfer,
    workers,
)
from bottleneck.analysis.advice.case import Case, Rule, Suggestion, open_case
from bottleneck.analysis.edits.edits import CACHE, CAUSES, FIRST, LINE, MORE_WORKERS, USE_WORKERS, edit_of, is_fact
from bottleneck.analysis.readings import Readings
from bottleneck.results.records import Advice, GainBasis, Interval, Result, Stage, Verdict

RULES: tuple[Rule, ...] = (
    *many_ranks.RULES,
    *loop.RULES,
    *causes.RULES,
    *amplified.RULES,
    *lines.RULES,
    *stages.RULES,
    *cores.RULES,
    *device.RULES,
    *samples.RULES,
    *transfer.RULES,
    *workers.RULES,
)
"""Every rule, in the order in which advice of the same gain is given; a module of rules adds its own here."""
LOOP_IDS = frozenset(id for rule in loop.RULES for id in rule.ids)
"""Advice on what is neither input nor train step: where no input holds the job, it goes before work on the step."""


def advise(
    measurement: Result, readings: Readings, found_stages: Sequence[Stage], verdict: Verdict
) -> tuple[Advice, ...]:
    """The advice: the largest gain first, of the same gain a cause first; then what is general; facts are last."""
    case = open_case(measurement, readings, found_stages, verdict)
    if case is None:
        return ()
    found = [suggestion for rule in RULES for suggestion in rule(case)]
    # Whose stage costs the job nothing is not due.
    found = [one for one in found if (stage := case.stage(one.stage)) is None or not case.costs_nothing(stage)]
    answered = {suggestion.stage for suggestion in found if not suggestion.fallback}
    kept = [one for one in found if not one.fallback or one.stage not in answered]
    given = [_advice(case, one) for one in kept]
    ranks = [_rank(*pair, given, measurement, verdict) for pair in zip(kept, given, strict=True)]
    ordered = [given[place] for place in sorted(range(len(given)), key=ranks.__getitem__)]
    return tuple(_with_workers_early(case, ordered))


def _with_workers_early(case: Case, ordered: Sequence[Advice]) -> list[Advice]:
    """The same with workers, of which the job has none or one, among the first two: one setting, known by its gain."""
    few = [item for item in ordered[2:] if item.id in (USE_WORKERS, MORE_WORKERS) and case.workers <= 1]
    rest = [item for item in ordered if item not in few]
    return [*rest[:1], *few, *rest[1:]]


_WHOLE_STAGE = frozenset((CACHE, "cut-fetch", "fetch-in-batches", "mark-other", "split-stages", "wait-less"))
"""Advice on a stage as a whole. What takes most of that stage goes before it, whatever it would gain."""
_GENERAL = frozenset(("cut-fetch", "look-inside", "mark-other", "split-stages", "wait-less", "workers-cannot-help"))
"""Next steps, and what is up to the machine: after all that can be changed in the job."""
_PLACES = frozenset((LINE, "costliest-transform", "uneven-samples"))
"""Advice that names what takes the time. Without a remedy that becomes twice as fast, let us say, and never free."""


def _rank(
    suggestion: Suggestion, advice: Advice, given: Sequence[Advice], measurement: Result, verdict: Verdict
) -> tuple[int, float, int]:
    """The place of a piece of advice; within it by gain, and of the same gain a cause first, then an edit."""
    gain = _estimate(advice)
    # What need not be done at all is left out before it is measured longer, or made faster.
    if advice.id in LOOP_IDS and verdict.state != "input_bound":
        return -1, -gain, 0
    if advice.id == FIRST:
        return 0, -gain, 0
    if is_fact(advice):
        return 3, -gain, 0
    if advice.id in _GENERAL:
        return 2, -gain, 0
    if advice.id in CAUSES and gain > 1:
        places = [_twice_as_fast(_estimate(other)) for other in given if other.id in _PLACES]
        workers = max((_estimate(other) for other in given if other.id == "more-workers"), default=0.0)
        # More workers would do more of what need not be done at all.
        return 1, -max([gain, *places, *([workers] if gain >= _twice_as_fast(workers) else ())]), 0
    if suggestion.cause:
        # What explains a line goes before it, too.
        behind = _WHOLE_STAGE if advice.id == LINE else _WHOLE_STAGE | {LINE}
        others = (other for other in given if other.id in behind and other.stage == advice.stage)
        return 1, -max([gain, *map(_estimate, others)]), 0
    if advice.id in _PLACES:
        return 1, -_twice_as_fast(gain), 2
    return 1, -gain, 1 if edit_of(advice, measurement.pipeline, measurement.evidence) is not None else 2


def _twice_as_fast(gain: float) -> float:
    """What is gained by half of what a gain takes away."""
    return 2 * gain / (1 + gain)


def _estimate(advice: Advice) -> float:
    return advice.gain.estimate if advice.gain else 1.0


def _advice(case: Case, suggestion: Suggestion) -> Advice:
    gain, basis = _gain(case, suggestion)
    return Advice(
        id=suggestion.id,
        stage=suggestion.stage,
        title=suggestion.title,
        why=suggestion.why,
        how=suggestion.how,
        evidence=suggestion.evidence,
        gain=gain,
        gain_basis=basis,
    )


def _gain(case: Case, suggestion: Suggestion) -> tuple[Interval | None, GainBasis | None]:
    gain, stage = suggestion.gain, case.stage(suggestion.stage)
    if suggestion.frees_stage and stage is not None:
        if stage.gain_if_free is not None:
            return stage.gain_if_free, "measured"
        gain = case.gain_of(stage)
    if isinstance(gain, Interval):
        return gain, "measured" if suggestion.measured else "estimated"
    return (Interval(gain, 1.0, gain), "estimated") if gain > 1 else (None, None)
