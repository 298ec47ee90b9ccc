"""Derived numbers of a report: the parts of a step, possible gains, and gains of several stages together.

They are computed once, when a result is made, and are part of its JSON. A file of an earlier version gets them when it
is reported. No part is negative, though noise can make an experiment seem faster than the one inside it; no gain is
below one, or above the limits set by the cost of a stage and by all of the input together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import accumulate
from typing import TypeVar

from bottleneck.analysis.ranks import sync_gain
from bottleneck.analysis.settings import MARGIN, positive
from bottleneck.results.evidence import Evidence
from bottleneck.results.format import known
from bottleneck.results.names import COMPUTE, DEVICE, HOST, RAW, SYNC
from bottleneck.results.records import Experiment, Interval, Rate, Result, Stage, StepPart, WhatIf
from bottleneck.results.values import LARGEST

AnyResult = TypeVar("AnyResult", bound=Result)

_WORTH_A_NUMBER = 0.01
"""Part of a step above which a time is worth a number."""
EXPLAINED = 0.75
"""Part of the time that stages add to a step that their clocks have to explain, to attribute it to each."""
_MAX_DRIFT = 2.0
"""Ratio of the stages' sum to the step, above which drift cannot be the reason."""
_MIN_GAIN = 1e-6


def completed(result: AnyResult) -> AnyResult:
    """Return the result with the numbers of a report; they are missing in files of earlier versions.

    What several stages bring together needs the statistics of their blocks: a report does without, and without numpy.
    """
    return result if result.step else with_parts(result, together=False)


def with_parts(result: AnyResult, *, together: bool = True) -> AnyResult:
    """Return the result with the numbers that follow from its others."""
    stages = tuple(
        replace(s, possible_gain=_possible_gain(result, s), waiting_share=waiting_share(s, result.evidence))
        for s in result.stages
    )
    judged = result.verdict.judged
    loss = None if judged is None else judged.mapped(lambda share: max(0.0, 1 - share))
    verdict = replace(result.verdict, loss=loss)
    result = replace(result, stages=stages, verdict=verdict, evidence=_with_waiting_transforms(result.evidence))
    return replace(result, step=_step(result), what_if=tuple(_what_if(result, together=together)))


# --- waiting ----------------------------------------------------------------------------------------------


def waiting_share(stage: Stage, evidence: Evidence) -> float | None:
    """Return the part of a stage's time in the workers that is waiting; None if not observed.

    A worker that is ready and gets no core does not wait for a disk, the network or a lock. It happens while it
    computes, so this time is shared out by CPU time.
    """
    if stage.wall_s_per_batch is None or stage.cpu_s_per_batch is None:
        return None
    return share_of(stage.wall_s_per_batch, stage.cpu_s_per_batch, evidence)


def share_of(wall_s: float, cpu_s: float, evidence: Evidence) -> float | None:
    """Return the part of some wall-clock time that is waiting, given the CPU time in it."""
    if wall_s <= 0:
        return None
    busy_s = cpu_s * (1 + max(0.0, evidence.core_wait_per_cpu_s or 0.0))
    return min(1.0, max(0.0, 1 - busy_s / wall_s))


def _with_waiting_transforms(evidence: Evidence) -> Evidence:
    transforms = tuple(
        seen
        if seen.wall_s_per_call is None or seen.cpu_s_per_call is None
        else replace(seen, waiting_share=share_of(seen.wall_s_per_call, seen.cpu_s_per_call, evidence))
        for seen in evidence.transforms
    )
    return replace(evidence, transforms=transforms)


# --- the parts of a step ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rung:
    """An experiment that was measured, with the stages since the one inside it."""

    outer: str
    seconds: float
    names: tuple[str, ...]
    stages: tuple[Stage, ...]

    @property
    def alone(self) -> Stage | None:
        """The stage, if it is the only one."""
        return self.stages[0] if len(self.names) == len(self.stages) == 1 else None

    @property
    def added_s(self) -> float | None:
        """Seconds that its stage adds over common rounds; None if unknown."""
        exposed = self.alone.exposed_s_per_batch if self.alone is not None else None
        return max(0.0, exposed.estimate) if exposed is not None and known(exposed.estimate) else None


def _step(result: Result) -> tuple[StepPart, ...]:
    """Return the step from the device outwards; empty if the unmodified job was not measured.

    Beyond the train step the parts are in proportion to what each stage adds to the experiment inside it, over the
    rounds that the two have in common: where others had more rounds, drift of the machine lies between.
    """
    raw = result.coupled(RAW)
    if raw is None:
        return ()
    rungs, whole_s = tuple(_rungs(result)), raw.seconds_per_batch
    found, begin_s = [], 0.0
    for rung, end_s in zip(rungs, _ends_s(rungs, whole_s), strict=True):
        added_s = end_s - begin_s
        shares = _shares_by_clocks(rung, added_s)
        if shares:
            ends_s = accumulate((share * added_s for share in shares), initial=begin_s)
            for stage, share, at_s in zip(rung.stages, shares, list(ends_s)[1:], strict=True):
                name, part_s = stage.name, share * added_s
                if stage.wall_s_per_batch is not None:
                    found.append(StepPart(name, (name,), rung.outer, part_s, None, at_s, None, by_clocks=True))
            begin_s = end_s
            continue
        exposed = rung.alone.exposed_s_per_batch if rung.alone is not None else None
        around = exposed and Interval(added_s, min(exposed.low, added_s), max(exposed.high, added_s))
        at_most_s = _at_most_s(rung.alone, added_s, whole_s)
        stages = tuple(stage.name for stage in rung.stages)
        found.append(StepPart("+".join(rung.names), stages, rung.outer, added_s, around, end_s, at_most_s))
        begin_s = end_s
    return _with_sync(result, found)


def _shares_by_clocks(rung: _Rung, added_s: float) -> list[float]:
    """Return each stage's part of their joint time, by the workers' clocks; empty if unknown."""
    clocks_s = [stage.wall_s_per_batch or 0.0 for stage in rung.stages]
    whole_s = sum(clocks_s)
    if len(rung.names) < 2 or len(rung.stages) < len(rung.names) or not known(whole_s):
        return []
    if whole_s < EXPLAINED * added_s or not added_s:
        return []
    return [seconds / whole_s for seconds in clocks_s]


def _rungs(result: Result) -> Iterator[_Rung]:
    by_outer = {stage.outer: stage for stage in result.stages}
    names: list[str] = []
    stages: list[Stage] = []
    for experiment in _ladder(result):
        stage, rate = by_outer.get(experiment.name), result.coupled(experiment.name)
        names.append(stage.name if stage else experiment.name)
        stages += [stage] if stage else []
        if rate is not None:
            yield _Rung(experiment.name, rate.seconds_per_batch, tuple(names), tuple(stages))
            names, stages = [], []


def _ladder(result: Result) -> Iterator[Experiment]:
    """Yield the experiments that apply, up to the unmodified job; each once."""
    seen = set()
    for experiment in result.experiments:
        if experiment.available and experiment.name not in seen:
            seen.add(experiment.name)
            yield experiment
        if experiment.name == RAW and experiment.available:
            return


def _ends_s(rungs: Sequence[_Rung], whole_s: float) -> list[float]:
    """Return the step up to each experiment; the last one is the whole."""
    first_s = min(whole_s, rungs[0].seconds)
    added = [rung.added_s for rung in rungs[1:]]
    together_s = sum(seconds for seconds in added if seconds is not None)
    rest_s = whole_s - first_s
    if None in added or not rest_s / _MAX_DRIFT <= together_s <= rest_s * _MAX_DRIFT or not 0 < together_s < LARGEST:
        # The experiments as they were measured, each at least as long as the one inside it.
        return [min(whole_s, longest_s) for longest_s in accumulate((rung.seconds for rung in rungs), max)]
    ends = list(accumulate(((seconds or 0.0) / together_s * rest_s for seconds in added), initial=first_s))
    return [*(min(whole_s, end_s) for end_s in ends[:-1]), whole_s]


def _at_most_s(stage: Stage | None, seconds: float, whole_s: float) -> float | None:
    """Return an upper bound of a part that may be nothing; None for one with a number."""
    exposed = stage.exposed_s_per_batch if stage is not None and stage.inner is not None else None
    sure = exposed is None or (known(exposed.low) and exposed.low > 0)
    if sure and seconds >= _WORTH_A_NUMBER * whole_s:
        return None
    high_s = exposed.high if exposed is not None and known(exposed.high) else 0.0
    return min(whole_s, max(seconds, high_s, _WORTH_A_NUMBER * whole_s))


def _with_sync(result: Result, found: Sequence[StepPart]) -> tuple[StepPart, ...]:
    """Return the parts, with the time of sharing gradients as a separate part of the train step if worth naming."""
    cost_s, gain = result.evidence.ranks.sync.cost_s_per_batch, sync_gain(result.evidence.ranks)
    compute, *others = found
    if compute.name != COMPUTE or gain is None or not known(cost_s) or not 0 < cost_s < compute.s_per_batch:
        return tuple(found)
    alone_s = compute.s_per_batch - cost_s
    alone = replace(compute, s_per_batch=alone_s, end_s=alone_s)
    return alone, StepPart(SYNC, (), compute.outer, cost_s, None, compute.end_s, None), *others


# --- gains ------------------------------------------------------------------------------------------------


def is_sure(gain: Interval | None) -> bool:
    """Return True if there clearly is a gain worth acting on."""
    return gain is not None and gain.low > 1 and gain.estimate > MARGIN


def _possible_gain(result: Result, stage: Stage) -> Interval | None:
    """Return the measured gain within its limits: at least none, and at most what the stage's cost allows."""
    gain = stage.gain_if_free
    if gain is None or not all(map(known, (gain.estimate, gain.low, gain.high))):
        return None
    most = _most_gain(result, stage)
    if gain.low > most:  # what was measured of the two cannot both be true
        return Interval(1.0, 1.0, most)
    return Interval(*(min(max(1.0, bound), most) for bound in (gain.estimate, gain.low, max(gain.estimate, gain.high))))


def _most_gain(result: Result, stage: Stage) -> float:
    """Return the job's largest gain without the cost of a stage, or without all of its input."""
    if stage.is_alternative:  # its step is that of another state
        return math.inf
    headroom, cost = result.verdict.headroom, stage.cost_s_per_batch
    limits = [headroom.high] if headroom is not None and known(headroom.high) else []
    job_s = _job_s(result)
    if cost is not None and known(cost.high) and job_s is not None:
        cost_s = max(0.0, cost.high)
        limits.append(job_s / (job_s - cost_s) if cost_s < job_s else math.inf)
    return max(1.0, min(limits, default=math.inf))


def _job_s(result: Result) -> float | None:
    """Return the step that a stage's cost is part of: that of the loader alone on cores shared with the model."""
    raw, alone = result.coupled(RAW), result.loader_alone
    if raw is None or alone is None or result.pipeline.get("num_workers") == 0:
        return None if raw is None else raw.seconds_per_batch
    return min(raw.seconds_per_batch, alone.seconds_per_batch)


# --- several stages ---------------------------------------------------------------------------------------


def _what_if(result: Result, *, together: bool) -> Iterator[WhatIf]:
    """Yield the stages that gain something measurable, the most first; then some together, then all of the input.

    Nothing is added up. A single stage was measured without it; several together if the ladder has an experiment
    that serves just these from a cache. In a chain the outermost stages always have one.
    """
    raw = result.coupled(RAW)
    if raw is None:
        return
    whole = _usable(result.verdict.headroom)
    singles: list[tuple[tuple[str, ...], Interval]] = []
    for stage in _inputs(result):
        if stage.possible_gain is not None and is_sure(stage.possible_gain):
            singles.append(((stage.name,), stage.possible_gain))
    shared = _usable(sync_gain(result.evidence.ranks))
    if shared is not None:
        singles.append(((SYNC,), shared))
    found = sorted(singles, key=lambda each: -each[1].estimate)
    most = max((gain.estimate for _, gain in found), default=1.0)
    several = _together(result, raw, whole, most=most) if together else None
    if several is not None:
        found.append(several)
    if whole is not None and whole.high > 1:
        found.append(((), whole))
    length = positive(result.pipeline, "dataset_length")
    for stages, gain in found:
        rate = raw.samples_per_s * gain.estimate
        epoch_s = None if length is None else length / rate
        yield WhatIf(stages, gain, rate, epoch_s if known(epoch_s) else None)


def _together(
    result: Result, raw: Rate, whole: Interval | None, most: float
) -> tuple[tuple[str, ...], Interval] | None:
    """Return the costliest two stages, and those beyond them, if they gain more together than any single one.

    If two stages limit the job equally, neither brings a gain alone.
    """
    if whole is None:
        return None
    # These import numpy and scipy, which the report of a saved result does without.
    from bottleneck.analysis.statistics import ratio, series
    from bottleneck.analysis.verdict import cost_s

    wanted = {stage.name for stage in sorted(_inputs(result), key=cost_s)[-2:] if cost_s(stage) > 0}
    served, inner = _outermost(result, wanted)
    rate = result.coupled(inner) if len(served) > 1 and inner not in (DEVICE, HOST, None) else None
    gain = None if rate is None else _usable(ratio(series(raw.blocks), series(rate.blocks)))
    if gain is None:
        return None
    bounds = zip(astuple(gain), astuple(whole), strict=True)
    gain = Interval(*(min(one, limit) for one, limit in bounds))  # never more than all of the input
    return (served, gain) if gain.low > 1 and gain.estimate > MARGIN * most else None


def _outermost(result: Result, wanted: set[str]) -> tuple[tuple[str, ...], str | None]:
    """Return the fewest stages from the far end that include all that are wanted, and the experiment without them."""
    served: list[str] = []
    for stage in reversed(_inputs(result)):
        served.append(stage.name)
        if len(wanted) > 1 and wanted <= set(served):
            return tuple(served), stage.inner
    return (), None


def _inputs(result: Result) -> list[Stage]:
    """Return the stages of the input, from the device outwards, without storage, which is not part of the job."""
    return [stage for stage in result.stages if stage.is_input]


def _usable(interval: Interval | None) -> Interval | None:
    """Return an interval of factors that make sense; a file may hold any."""
    if interval is None or not all(_MIN_GAIN < bound < LARGEST for bound in astuple(interval)):
        return None
    return interval if interval.low <= interval.estimate <= interval.high else None
