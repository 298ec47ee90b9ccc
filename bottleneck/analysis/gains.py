"""What the job would gain without a stage: as measured, and never more than goes with what the stage costs.

The one estimate behind every gain that a report shows; a module of its own, so that reports need no numpy for it.
"""

from __future__ import annotations

import math

from bottleneck.analysis.margin import MARGIN
from bottleneck.results.format import known
from bottleneck.results.names import COLD, RAW
from bottleneck.results.records import Interval, Rate, Result, Stage


def gain_of(result: Result, stage: Stage) -> Interval | None:
    """What the job would gain if the stage were free: at least nothing, and no more than goes with what it costs."""
    gain = stage.gain_if_free
    if gain is None or not all(map(known, (gain.estimate, gain.low, gain.high))):
        return None
    most = _most_gain(result, stage)
    if gain.low > most:  # what was measured of the two cannot both be true
        return Interval(1.0, 1.0, most)
    return Interval(*(min(max(1.0, bound), most) for bound in (gain.estimate, gain.low, max(gain.estimate, gain.high))))


def _most_gain(result: Result, stage: Stage) -> float:
    """What a job gains at most that loses the cost of a stage, or all of its input."""
    if stage.outer == COLD:  # its step is that of cold files
        return math.inf
    headroom, cost = result.verdict.headroom, stage.cost_s_per_batch
    limits = [headroom.high] if headroom is not None and known(headroom.high) else []
    job_s = _job_s(result)
    if cost is not None and known(cost.high) and job_s is not None:
        cost_s = max(0.0, cost.high)
        limits.append(job_s / (job_s - cost_s) if cost_s < job_s else math.inf)
    return max(1.0, min(limits, default=math.inf))


def _job_s(result: Result) -> float | None:
    """The step that a stage's cost is a part of: that of the loader alone, where cores are shared with the model."""
    whole_s, alone_s = step_s(result), loader_alone_s(result)
    if whole_s is None or alone_s is None or result.pipeline.get("num_workers") == 0:
        return whole_s
    return min(whole_s, alone_s)


def sure_gain_of(result: Result, stage: Stage) -> Interval | None:
    """The gain of a stage that surely has one worth acting on."""
    gain = gain_of(result, stage)
    return gain if gain is not None and gain.low > 1 and gain.estimate > MARGIN else None


def step_s(result: Result) -> float | None:
    """The time of one step of the job [s]; None where that was not measured."""
    raw = next((e.coupled for e in result.experiments if e.name == RAW and e.available), None)
    return seconds_of(raw)


def loader_alone_s(result: Result) -> float | None:
    """What the loader by itself takes for a batch [s]."""
    raw = next((e for e in result.experiments if e.name == RAW and e.available), None)
    return seconds_of(raw.workers) or seconds_of(raw.drained) if raw is not None else None


def seconds_of(rate: Rate | None) -> float | None:
    """The time of a batch [s]; None where that was not measured."""
    seconds = rate.seconds_per_batch if rate is not None else None
    return seconds if known(seconds) and seconds > 0 else None
