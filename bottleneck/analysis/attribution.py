"""Where the time of a step goes: cost, exposure and gain of each stage, and whether its drop is real."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from bottleneck.analysis.names import COLD, COMPUTE, COPY
from bottleneck.analysis.readings import Readings
from bottleneck.analysis.statistics import CONFIDENCE, Series, Spread, jackknife, log_ratio, ratio
from bottleneck.results.records import Finding, Interval, Stage, StageSpan

MARGIN = 1.03
"""Ratio of times below which a difference is not worth acting on, however surely it was measured."""

_LADDER_CONFIDENCE = 0.95


def attribute(readings: Readings) -> tuple[Stage, ...]:
    """Return what each stage costs, from the device outwards."""
    return tuple(_attribute_stage(readings, span) for span in readings.spans)


def _attribute_stage(readings: Readings, span: StageSpan) -> Stage:
    exposed = _exposed(readings, span)
    share = exposed_share(readings, span)
    return Stage(
        name=span.name,
        inner=span.inner,
        outer=span.outer,
        cost_s_per_batch=exposed if span.name in (COMPUTE, COPY) else _drained_cost(readings, span),
        exposed_s_per_batch=exposed,
        exposed_share=None if share is None else _at_most_one(share.interval()),
        gain_if_free=_gain_if_free(readings, span),
        finding=_finding(readings, span),
        wall_s_per_batch=span.wall_s_per_batch,
        cpu_s_per_batch=span.cpu_s_per_batch,
    )


def with_family_gains(readings: Readings, stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the stages with gains whose lower bounds hold at 95 % over all of them together (Bonferroni).

    What surely gains is chosen from among all gains, and with dozens of stages one or the other would do by noise.
    """
    gains = sum(stage.gain_if_free is not None for stage in stages)
    confidence = 1 - (1 - CONFIDENCE) / max(gains, 1)
    made = []
    for stage, span in zip(stages, readings.spans, strict=True):
        gain, surest = stage.gain_if_free, _gain_if_free(readings, span, confidence)
        if gain is not None and surest is not None:
            made.append(replace(stage, gain_if_free=replace(gain, low=surest.low)))
        else:
            made.append(stage)
    return tuple(made)


def _at_most_one(share: Interval) -> Interval:
    """Cut a share at the whole; one that is surely more than that is a contradiction, and is not shown at all."""
    return Interval(*(min(bound, 1.0) for bound in (share.estimate, share.low, share.high)))


def exposed_share(readings: Readings, span: StageSpan) -> Spread | None:
    """Estimate the part of the whole job's time per sample that the stage adds to its inner experiment.

    Over one and the same set of rounds the shares of all stages add up to one. `storage` is no part of raw: of it
    the share is that of the job with cold files.
    """
    outer, raw = readings.coupled.get(span.outer), readings.raw if span.outer != COLD else readings.cold
    if outer is None or raw is None:
        return None
    if span.inner is None:
        return jackknife(lambda o, r: o / r, (outer, raw))
    inner = readings.coupled.get(span.inner)
    if inner is None:
        return None
    return jackknife(lambda o, i, r: (o - i) / r, (outer, inner, raw))


def drop(readings: Readings, span: StageSpan) -> Spread | None:
    """Estimate the log of the factor by which the stage lengthens the time per sample.

    Of the same sums as its share, so that the two never contradict each other where single blocks stall.
    """
    outer, inner = readings.coupled.get(span.outer), readings.coupled.get(span.inner or "")
    return None if outer is None or inner is None else log_ratio(outer, inner)


def drop_confidence(readings: Readings) -> float:
    """Return the confidence of each drop that gives all of the ladder together 95 % (Bonferroni)."""
    drops = sum(
        span.inner is not None and span.inner in readings.coupled and span.outer in readings.coupled
        for span in readings.spans
    )
    return 1 - (1 - _LADDER_CONFIDENCE) / max(drops, 1)


def _exposed(readings: Readings, span: StageSpan) -> Interval | None:
    """Return the coupled time per batch that the stage adds [s]."""
    outer = readings.coupled.get(span.outer)
    if outer is None:
        return None
    if span.inner is None:
        return _per_batch(outer, None)
    inner = readings.coupled.get(span.inner)
    return None if inner is None else _per_batch(outer, inner)


def _drained_cost(readings: Readings, span: StageSpan) -> Interval | None:
    """Return the time per batch that the stage adds to the loader alone [s].

    With workers the comparison is of the workers alone. Hand-off shares a process, and there Python's global
    lock, with the stages before it, and overlaps with them as far as they wait; a drop of the drained throughput
    would therefore understate a stage that waits and overstate one that computes.

    The innermost loader stage has no loader experiment inside it; all of its drained time is its own.
    """
    alone = worker_cost(readings, span)
    if alone is not None:
        return alone
    outer, inner = readings.drained.get(span.outer), readings.drained.get(span.inner or "")
    return None if outer is None else _per_batch(outer, inner)


def worker_cost(readings: Readings, span: StageSpan) -> Interval | None:
    """Return the time per batch that the stage adds to the workers alone [s]; None where that was not measured."""
    outer, inner = readings.workers.get(span.outer), readings.workers.get(span.inner or "")
    return None if outer is None or inner is None else _per_batch(outer, inner)


def _per_batch(outer: Series, inner: Series | None) -> Interval | None:
    """Return the difference of two times per sample, times the mean batch size of the outer one."""
    size = outer.samples_per_batch
    spread = (
        jackknife(lambda o: o * size, (outer,))
        if inner is None
        else jackknife(lambda o, i: (o - i) * size, (outer, inner))
    )
    return None if spread is None else spread.interval()


def _gain_if_free(readings: Readings, span: StageSpan, confidence: float = CONFIDENCE) -> Interval | None:
    """Return the throughput without the stage over that of the whole job, both measured.

    Without `storage` the job is raw; the whole one then is that with cold files.
    """
    if span.outer == COLD:
        return None if readings.cold is None or readings.raw is None else ratio(readings.cold, readings.raw, confidence)
    without = readings.without.get(span.name)
    if span.name == COMPUTE or without is None or readings.raw is None:
        return None
    return ratio(readings.raw, without, confidence)


def _finding(readings: Readings, span: StageSpan) -> Finding:
    """Compare the stage's drop with the margin."""
    if span.inner is None:
        return "real" if span.outer in readings.coupled else "undecided"
    spread = drop(readings, span)
    if spread is None:
        return "undecided"
    interval = spread.interval(drop_confidence(readings))
    if interval.low > math.log(MARGIN):
        return "real"
    return "within_noise" if interval.high < math.log(MARGIN) else "undecided"
