"""One step of the job, split by stage: the one estimate behind every time, gain and finding that a report shows.

The parts add up to the step. Beyond the train step they are in proportion to what each stage adds to the experiment
inside it, over the rounds that the two have in common: where others had more rounds, drift of the machine lies between.
None is negative, though noise can make an experiment seem faster than the one inside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from bottleneck.analysis.gains import gain_of, loader_alone_s, seconds_of, step_s, sure_gain_of
from bottleneck.analysis.margin import MARGIN
from bottleneck.analysis.ranks import straggler_of, sync_gain
from bottleneck.reports.content.job import on_cpu
from bottleneck.results.format import LARGEST, at_most, duration, gain_interval, known
from bottleneck.results.names import COMPUTE, RAW, SYNC
from bottleneck.results.records import Experiment, Result, Stage

NO_EFFECT = "no measurable effect"
IMPRECISE = "not measured precisely enough"
COSTS_TIME = "also costs time"
FIX_FIRST = "fix this first"
HOLDS = "holds the job"

_WORTH_A_NUMBER = 0.01
"""The part of a step from which on a time is a number of its own."""
_MOST_DRIFT = 2.0
"""How far what the stages add may be from the step, for drift to be the reason."""
_SMALL_GAIN = 1.1
"""A gain that is not sure and at most this is none to look for."""


@dataclass(frozen=True)
class Part:
    """What one stage, or several that were not measured apart, adds to the step."""

    name: str
    stages: tuple[Stage, ...]
    outer: str
    """The experiment that it was measured by."""
    seconds: float
    """Of the step; all parts together are the step."""
    end_s: float
    """The step up to here, from the device outwards."""
    most_s: float | None = None
    """What it surely stays under, where it may be nothing at all."""

    @property
    def time(self) -> str:
        """The time as it is shown."""
        return duration(self.seconds) if self.most_s is None else at_most(self.most_s)


def parts(result: Result) -> tuple[Part, ...]:
    """The step from the device outwards; nothing where the job as it is was not measured."""
    whole_s = step_s(result)
    return () if whole_s is None else tuple(_parts(result, whole_s))


def _parts(result: Result, whole_s: float) -> Iterator[Part]:
    rungs = tuple(_rungs(result))
    begin_s = 0.0
    for rung, end_s in zip(rungs, _ends_s(rungs, whole_s), strict=True):
        alone = rung.stages[0] if len(rung.names) == len(rung.stages) == 1 else None
        added_s = end_s - begin_s
        most_s = _most_s(alone, added_s, whole_s)
        yield Part("+".join(rung.names), rung.stages, rung.outer, added_s, end_s, most_s)
        begin_s = end_s


def parts_with_sync(result: Result) -> tuple[Part, ...]:
    """The same, with what sharing gradients takes of the train step apart, where that is worth naming."""
    found, cost_s = parts(result), result.evidence.ranks.sync.cost_s_per_batch
    if not found or found[0].name != COMPUTE or sync_gain(result.evidence.ranks) is None:
        return found
    compute = found[0]
    if cost_s is None or not known(cost_s) or not 0 < cost_s < compute.seconds:
        return found
    alone_s = compute.seconds - cost_s
    alone = replace(compute, seconds=alone_s, end_s=alone_s)
    return alone, Part(SYNC, (), compute.outer, cost_s, compute.end_s), *found[1:]


@dataclass(frozen=True)
class _Rung:
    """An experiment that was measured, with the stages since the one inside it."""

    outer: str
    seconds: float
    names: tuple[str, ...]
    stages: tuple[Stage, ...]

    @property
    def added_s(self) -> float | None:
        """What its stage adds over common rounds; None where that is unknown."""
        exposed = self.stages[0].exposed_s_per_batch if len(self.names) == len(self.stages) == 1 else None
        return max(0.0, exposed.estimate) if exposed is not None and known(exposed.estimate) else None


def _rungs(result: Result) -> Iterator[_Rung]:
    by_outer = {stage.outer: stage for stage in result.stages}
    names: list[str] = []
    stages: list[Stage] = []
    for experiment in _ladder(result):
        stage = by_outer.get(experiment.name)
        names.append(stage.name if stage else experiment.name)
        stages += [stage] if stage else []
        measured_s = seconds_of(experiment.coupled)
        if measured_s is not None:
            yield _Rung(experiment.name, measured_s, tuple(names), tuple(stages))
            names, stages = [], []


def _ends_s(rungs: Sequence[_Rung], whole_s: float) -> list[float]:
    """The step up to each experiment; the last one is the whole."""
    first_s = min(whole_s, rungs[0].seconds)
    added = [rung.added_s for rung in rungs[1:]]
    together_s = sum(seconds for seconds in added if seconds is not None)
    rest_s = whole_s - first_s
    if None in added or not rest_s / _MOST_DRIFT <= together_s <= rest_s * _MOST_DRIFT or not 0 < together_s < LARGEST:
        # The experiments as they were measured, each at least as long as the one inside it.
        return [min(whole_s, longest_s) for longest_s in accumulate((rung.seconds for rung in rungs), max)]
    ends = list(accumulate(((seconds or 0.0) / together_s * rest_s for seconds in added), initial=first_s))
    return [*(min(whole_s, end_s) for end_s in ends[:-1]), whole_s]


def _ladder(result: Result) -> Iterator[Experiment]:
    """The experiments that apply, up to the job as it is; each once."""
    seen = set()
    for experiment in result.experiments:
        if experiment.available and experiment.name not in seen:
            seen.add(experiment.name)
            yield experiment
        if experiment.name == RAW and experiment.available:
            return


def _most_s(stage: Stage | None, seconds: float, whole_s: float) -> float | None:
    """What a part surely stays under that may be nothing; None for one that is a number of its own."""
    exposed = stage.exposed_s_per_batch if stage is not None and stage.inner is not None else None
    sure = exposed is None or (known(exposed.low) and exposed.low > 0)
    if sure and seconds >= _WORTH_A_NUMBER * whole_s:
        return None
    high_s = exposed.high if exposed is not None and known(exposed.high) else 0.0
    return min(whole_s, max(seconds, high_s, _WORTH_A_NUMBER * whole_s))


def takes(result: Result, name: str) -> str:
    """How much a stage takes, and of what; empty where that is not a number of its own.

    On a CPU it is a part of what the loader alone takes: a step says little there of a stage, because the workers and
    the train step slow each other down. Where another rank is the slow one, it is not its loader that was measured.
    """
    part = next((part for part in parts(result) if part.name == name), None)
    whole_s, alone_s = step_s(result), loader_alone_s(result)
    if on_cpu(result) and name != COMPUTE:
        held = straggler_of(result.evidence.ranks)
        if held is not None and 0 not in (held.rank, *held.ranks):
            return ""
        stage = next((stage for stage in result.stages if stage.name == name), None)
        cost = stage.cost_s_per_batch if stage is not None else None
        if cost is None or alone_s is None or not (known(cost.low) and 0 < cost.low <= cost.estimate <= alone_s):
            return ""
        return f"{duration(cost.estimate)} of the {duration(alone_s)} that the loader alone takes for a batch"
    return f"{part.time} of each {duration(whole_s)} step" if part and whole_s and part.most_s is None else ""


def effect(result: Result, stage: Stage) -> str:
    """What a stage means for the job, in the same words everywhere; nothing for a step that holds nothing up."""
    verdict = result.verdict
    if stage.name == verdict.bottleneck:
        return HOLDS if stage.name == COMPUTE else FIX_FIRST
    if stage.name in verdict.contributors:
        return COSTS_TIME
    gain = gain_of(result, stage)
    if stage.inner is None:
        return ""
    if gain is None:
        return {"real": COSTS_TIME, "within_noise": NO_EFFECT}.get(stage.finding, IMPRECISE)
    if gain.low > 1:
        return COSTS_TIME if gain.estimate > MARGIN else NO_EFFECT
    return NO_EFFECT if gain.high <= _SMALL_GAIN else IMPRECISE


def gain_text(result: Result, stage: Stage) -> str:
    """The gain of a stage that surely has one; a dash for others."""
    return gain_interval(sure_gain_of(result, stage))
