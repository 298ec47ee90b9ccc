"""Time of a step by stage, and numbers that contradict each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from bottleneck.analysis.costs import Costs, between
from bottleneck.analysis.readings import Readings
from bottleneck.analysis.settings import MARGIN, unit_of
from bottleneck.analysis.statistics import (
    CONFIDENCE,
    Confidence,
    Series,
    Spread,
    align,
    jackknife,
    log_ratio,
    ratio,
    shared_by,
)
from bottleneck.results.format import count, gain_interval
from bottleneck.results.names import COMPUTE, RAW
from bottleneck.results.records import Finding, Interval, Result, Stage


def attribute(readings: Readings, costs: Costs) -> tuple[Stage, ...]:
    """Return each stage with its cost, from the device outwards."""
    return tuple(_attribute_stage(readings, costs, span) for span in readings.spans)


def _attribute_stage(readings: Readings, costs: Costs, span: Stage) -> Stage:
    exposed = between(readings.coupled, span)
    share = exposed_share(readings, span)
    cost = costs.interval(span.name)
    if not cost and readings.alone is None and readings.clocks is not None:
        cost = readings.clocks.cost_s(span.name)
    return replace(
        span,
        cost_s_per_batch=cost,
        exposed_s_per_batch=None if exposed is None else exposed.interval(),
        exposed_share=None if share is None else share.interval().mapped(lambda bound: min(bound, 1.0)),
        gain_if_free=gain_if_free(readings, costs, span),
        finding=_finding(readings, costs, span),
    )


def with_family_gains(readings: Readings, costs: Costs, stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the stages with gains whose lower bounds hold at 95 % over all of them together (Bonferroni).

    The clear gains are chosen among all gains, and with dozens of stages some would be clear by noise alone. The
    sampling of the recorded batches is left out: they are the same ones for each stage.
    """
    same_batches = replace(readings, sampling_error=0.0)
    gains = sum(stage.gain_if_free is not None for stage in stages)
    confidence = shared_by(CONFIDENCE, gains)
    made = []
    for stage, span in zip(stages, readings.spans, strict=True):
        gain, surest = (gain_if_free(same_batches, costs, span, sure) for sure in (CONFIDENCE, confidence))
        if gain is not None and surest is not None:
            made.append(replace(stage, gain_if_free=replace(gain, low=surest.low)))
        else:
            made.append(stage)
    return tuple(made)


def exposed_share(readings: Readings, span: Stage) -> Spread | None:
    """Estimate the part of the whole job's time per sample that the stage adds to its inner experiment.

    Over one and the same set of rounds the shares of all stages add up to one. `storage` is no part of raw: of it
    the share is that of the job with cold files.
    """
    outer = readings.coupled.get(span.outer)
    whole = outer if span.is_alternative else readings.raw
    if outer is None or whole is None:
        return None
    if span.inner is None:
        return jackknife(lambda o, w: o / w, (outer, whole))
    inner = readings.coupled.get(span.inner)
    if inner is None:
        return None
    return jackknife(lambda o, i, w: (o - i) / w, (outer, inner, whole))


def drop(readings: Readings, span: Stage) -> Spread | None:
    """Estimate the log of the factor by which the stage lengthens the time per sample.

    Of the same sums as its share, so that the two never contradict each other where single blocks stall.
    """
    outer, inner = readings.coupled.get(span.outer), readings.coupled.get(span.inner or "")
    return None if outer is None or inner is None else log_ratio(outer, inner)


def drop_confidence(readings: Readings) -> Confidence:
    """Return the confidence of each drop that gives all of the ladder together 95 % (Bonferroni)."""
    drops = sum(
        span.inner is not None and span.inner in readings.coupled and span.outer in readings.coupled
        for span in readings.spans
    )
    return shared_by(CONFIDENCE, drops)


def gain_if_free(readings: Readings, costs: Costs, span: Stage, confidence: Confidence = CONFIDENCE) -> Interval | None:
    """Return the throughput without the stage over that of the whole job, both measured.

    Without `storage` the job is raw; the whole one then is that with cold files. No stage gains more than its cost
    allows, even if a step is disturbed or very short. The batches replayed without the stage are a sample of all
    batches, which widens the interval if these differ.
    """
    if span.is_alternative:
        whole = readings.coupled.get(span.outer)
        return None if whole is None or readings.raw is None else ratio(whole, readings.raw, confidence)
    without = readings.without.get(span.name)
    if span.name == COMPUTE or without is None or readings.raw is None:
        return None
    gain = log_ratio(readings.raw, without)
    if gain is None:
        return None
    unlike = replace(gain, below=readings.sampling_error, above=readings.sampling_error)
    if isinstance(confidence, float) and readings.clocks is not None and readings.clocks.are_slow:
        return _with_prediction(unlike, readings.predicted_gain(span.name), confidence)
    found, allowed = unlike.exponentiated(confidence), _allowed_gain(readings, costs, span)
    if allowed is None:
        return found
    least, most = allowed
    if found.high > most:
        return Interval(min(found.estimate, most), min(found.low, least), most)
    # Replaying the output of the stage may have taken as long as the stage.
    return found if costs.unresolved_s(span.name) is None else replace(found, high=most)


def _with_prediction(measured: Spread, predicted: Interval | None, confidence: float) -> Interval:
    """Weigh a measured gain with the one that the workers' clocks predict, if the two agree.

    Each counts by the inverse of its variance, on the log scale.

    Args:
        measured: Logarithm of the gain.
        predicted: The gain and its 95 % interval.
        confidence: Confidence of the returned interval.
    """
    seen = measured.exponentiated()
    if predicted is None or predicted.high < seen.low or seen.high < predicted.low:
        return measured.exponentiated(confidence)
    known = (math.log(predicted.high) - math.log(predicted.low)) / 2
    wider = NormalDist().inv_cdf(0.5 + confidence / 2) / NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    halves = [max(measured.half_width(confidence) + measured.above, 1e-4), max(wider * known, 1e-4)]
    weights = [1 / half**2 for half in halves]
    mean = (weights[0] * measured.estimate + weights[1] * math.log(predicted.estimate)) / sum(weights)
    half = 1 / math.sqrt(sum(weights))
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def _allowed_gain(readings: Readings, costs: Costs, span: Stage) -> tuple[float, float] | None:
    """Return the least and the most that a job gains that loses a stage's cost, by its interval.

    Workers that share their cores with the train step are slower than alone, and are relieved of that as
    well: there the cost is a part of the time of the loader alone. None if the stage was not left out.
    """
    costing, raw, alone = costs.costing(span.name), readings.raw, readings.alone
    cost = costing.interval() if costing is not None and costing.left_out else None
    if cost is None or raw is None or alone is None:
        return None
    step_s = raw.seconds_per_batch
    if not readings.in_main_process:
        step_s = min(step_s, alone.seconds_per_batch)
    least, most = (step_s / (step_s - cost_s) if cost_s < step_s else math.inf for cost_s in (cost.low, cost.high))
    return max(1.0, least), max(1.0, most)


def _finding(readings: Readings, costs: Costs, span: Stage) -> Finding:
    """Compare the stage's drop with the margin; a stage that costs less than measuring it has no real drop."""
    if span.inner is None:
        return "real" if span.outer in readings.coupled else "undecided"
    spread = drop(readings, span)
    if spread is None:
        return "undecided"
    interval = spread.interval(drop_confidence(readings))
    if interval.low > math.log(MARGIN):
        return "real" if costs.unresolved_s(span.name) is None else "undecided"
    return "within_noise" if interval.high < math.log(MARGIN) else "undecided"


# --- contradictions -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contradiction:
    """Two numbers that cannot both be true, and a remedy."""

    what: str
    remedy: str
    lead: str = "two numbers contradict each other"
    id: str = "contradiction"
    """Id of its warning."""


def find_contradiction(measurement: Result, readings: Readings) -> Contradiction | None:
    """Return a contradiction that makes the throughput of the job unusable; None if there is none."""
    unit, forgotten = unit_of(measurement), measurement.evidence.loader.forgotten
    if forgotten is not None:
        return Contradiction(
            f"{forgotten} of the dataset caches samples, which the workers of a diagnosis keep in later epochs; those "
            "of the job are not persistent, and load them again in each epoch",
            "Set persistent_workers=True, or load everything once before the workers start, and measure again.",
            lead="what was measured is faster than the job",
            id="dataset-keeps-samples",
        )
    raw, bound = readings.raw, readings.upper_bound
    faster = None if raw is None or bound is None else ratio(bound[1], raw)
    if raw is None or bound is None or faster is None or faster.low <= MARGIN:
        return None
    return Contradiction(
        got_more(unit, raw, *bound),
        "Batches of different shapes, a different clock of the device or other load may be the reason: measure again "
        "with a larger --budget on a quiet machine.",
    )


def got_more(unit: str, raw: Series, less: str, slow: Series) -> str:
    """Return the statement that the job was faster than an experiment that does less."""
    raw, slow = align((raw, slow))
    got, of_less = count(raw.samples_per_s), count(slow.samples_per_s)
    more = gain_interval(ratio(slow, raw))
    return f"{RAW} reached {got} {unit}, but {less}, which does less, {of_less}: {more} as much"
