"""Order of the advice: each item rests on numbers of this run, and an edit with a gain precedes one without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bottleneck.analysis.advice import (
    amplified,
    causes,
    constructions,
    cores,
    device,
    last_resorts,
    lines,
    loop,
    loop_lines,
    many_ranks,
    network,
    repeated,
    samples,
    stages,
    starting,
    transfer,
    workers,
)
from bottleneck.analysis.advice.case import WORTH, Case, Rule, Suggestion, open_case
from bottleneck.analysis.edits.edits import (
    CACHE,
    CAUSES,
    DISTINCT,
    FIRST,
    GARBAGE,
    LINE,
    MANY_TENSORS,
    MORE_WORKERS,
    NO_WORKERS,
    PICKLED,
    STEP_THREADS,
    USE_WORKERS,
    edit_of,
    is_fact,
)
from bottleneck.analysis.readings import Readings
from bottleneck.results.names import COMPUTE
from bottleneck.results.records import Advice, GainBasis, Interval, Result, Stage, Verdict

RULES: tuple[Rule, ...] = (
    *many_ranks.RULES,
    *loop_lines.RULES,
    *loop.RULES,
    *causes.RULES,
    *constructions.RULES,
    *network.RULES,
    *amplified.RULES,
    *repeated.RULES,
    *lines.RULES,
    *stages.RULES,
    *starting.RULES,
    *cores.RULES,
    *device.RULES,
    *samples.RULES,
    *transfer.RULES,
    *workers.RULES,
    *last_resorts.RULES,
)
"""Every rule, in the order in which advice of the same gain is given; a module of rules adds its own here."""
LOOP_IDS = frozenset(id for rule in (*loop_lines.RULES, *loop.RULES) for id in rule.ids)
"""Ids of advice on the rest of the loop: if the input does not limit the job, it precedes work on the step."""


def advise(
    measurement: Result, readings: Readings, found_stages: Sequence[Stage], verdict: Verdict
) -> tuple[Advice, ...]:
    """Return the advice: largest gain first, at the same gain causes first; then general advice, then facts."""
    case = open_case(measurement, readings, found_stages, verdict)
    if case is None:
        return ()
    found = [suggestion for rule in RULES for suggestion in rule(case)]
    # Whose stage costs the job nothing is not due.
    found = [one for one in found if (stage := case.stage(one.stage)) is None or not case.costs_nothing(stage)]
    pairs = [(suggestion, _advice(case, suggestion)) for suggestion in found]
    pairs = [pair for pair in pairs if pair[0].last_resort or pair[1].gain is None or pair[1].gain.high >= WORTH]
    answered = {suggestion.stage for suggestion, _ in pairs if not suggestion.fallback}
    pairs = [pair for pair in pairs if not pair[0].fallback or pair[0].stage not in answered]
    if any(not one.last_resort and not is_fact(advice) for one, advice in pairs):
        pairs = [pair for pair in pairs if not pair[0].last_resort]
    given = [advice for _, advice in pairs]
    ranks = [_rank(*pair, given, measurement, verdict) for pair in pairs]
    ordered = [given[place] for place in sorted(range(len(given)), key=ranks.__getitem__)]
    return tuple(_with_alternatives(_with_workers_early(case, _without_waiting(case, ordered))))


def _without_waiting(case: Case, given: Sequence[Advice]) -> Sequence[Advice]:
    """Omit a longer measurement if other advice promises as much as it could show."""
    most = max((_estimate(advice) for advice in given), default=1.0)
    return [advice for advice in given if advice.id != FIRST or most < max(WORTH, case.headroom)]


def _with_workers_early(case: Case, ordered: Sequence[Advice]) -> Sequence[Advice]:
    """Move workers, of which the job has none or one, among the first two: one setting with its own gain."""
    few = [item for item in ordered[2:] if item.id in (USE_WORKERS, MORE_WORKERS) and case.workers <= 1]
    rest = [item for item in ordered if item not in few]
    return [*rest[:1], *few, *rest[1:]]


_SAME_GAIN = 1.02
"""Two gains of one stage, one over the other, up to which they are of the same time."""


def _with_alternatives(given: Sequence[Advice]) -> Iterator[Advice]:
    """Say of advice that frees the same time of a stage as a piece before it that it is in its place, not on top."""
    for place, advice in enumerate(given):
        before = (other for other in given[:place] if other.stage == advice.stage != COMPUTE and advice.stage)
        gains = (_estimate(other) for other in before)
        is_other = advice.gain is not None and any(
            max(gain, advice.gain.estimate) <= _SAME_GAIN * min(gain, advice.gain.estimate) for gain in gains
        )
        yield replace(advice, title=f"Or: {advice.title}") if is_other else advice


_WHOLE_STAGE = frozenset((CACHE, DISTINCT, "cut-fetch", "fetch-in-batches", "mark-other", "split-stages", "wait-less"))
"""Ids of advice on a whole stage. Advice on its largest part precedes it, regardless of the gains."""
_GENERAL = frozenset(("cut-fetch", "look-inside", "mark-other", "split-stages", "wait-less", "workers-cannot-help"))
"""Ids of next steps, and of advice that depends on the machine: after all changes to the job."""
_EXPLAINED: dict[str, frozenset[str]] = {
    MANY_TENSORS: frozenset((NO_WORKERS,)),
    PICKLED: frozenset((NO_WORKERS, GARBAGE)),
}
"""Ids of advice that only avoids what a cause explains, by the id of the cause; it comes after, regardless of gains."""
_PLACES = frozenset((LINE, "costliest-transform", "uneven-samples"))
"""Ids of advice that names a costly part. Without a remedy, assume that it becomes twice as fast, never free."""


def _rank(
    suggestion: Suggestion, advice: Advice, given: Sequence[Advice], measurement: Result, verdict: Verdict
) -> tuple[int, float, int]:
    """Return the place of a piece of advice; within it by gain, and of the same gain a cause first, then an edit."""
    gain = _estimate(advice)
    # A step that is slow only for its threads is no measure of anything; workers that limit a job come first.
    if advice.id == STEP_THREADS and verdict.state != "input_bound":
        return -2, 0.0, 0
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
        places += [_estimate(o) for o in given if o.id in _WHOLE_STAGE and o.stage == advice.stage]
        workers = max((_estimate(other) for other in given if other.id == "more-workers"), default=0.0)
        if advice.id == GARBAGE:  # lines that make objects are where collections run: their time has these in it
            places += [of_line for other in given if gain >= _twice_as_fast(of_line := _line_gain(other))]
        # More workers would do more of what need not be done at all.
        return 1, -max([gain, *places, *([workers] if gain >= _twice_as_fast(workers) else ())]), 0
    if suggestion.cause:
        # What explains a line goes before it, too.
        behind = _WHOLE_STAGE if advice.id == LINE else _WHOLE_STAGE | {LINE}
        explained = _EXPLAINED.get(advice.id, frozenset())
        others = (o for o in given if o.id in explained or (o.id in behind and o.stage == advice.stage))
        return 1, -max([gain, *map(_estimate, others)]), 0
    if advice.id in _PLACES:
        return 1, -_twice_as_fast(gain), 2
    return 1, -gain, 1 if edit_of(advice, measurement.pipeline, measurement.evidence) is not None else 2


def _line_gain(advice: Advice) -> float:
    return _estimate(advice) if advice.id == LINE else 1.0


def _twice_as_fast(gain: float) -> float:
    """Return the gain from halving the time that a gain would remove."""
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
            return case.possible_gain(stage, stage.gain_if_free), "measured"
        gain = case.gain_of(stage)
    if isinstance(gain, Interval):
        return gain, "measured" if suggestion.measured else "estimated"
    return (Interval(gain, 1.0, gain), "estimated") if gain > 1 else (None, None)
