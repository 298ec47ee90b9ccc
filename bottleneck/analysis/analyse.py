"""The two entry points: the whole result of a measurement, and the short judgement made after every round."""

from __future__ import annotations

from bottleneck.analysis.advice import advise
from bottleneck.analysis.attribution import attribute
from bottleneck.analysis.cost_doubts import doubtful_costs
from bottleneck.analysis.costs import Costs
from bottleneck.analysis.precision import costs_are_precise, further_rounds, is_precise, state
from bottleneck.analysis.readings import Readings, experiments, read, withouts
from bottleneck.analysis.sentence import Findings, verdict_sentence
from bottleneck.analysis.statistics import Series, Spread, align
from bottleneck.analysis.tool import this_tool
from bottleneck.analysis.verdict import Choice, choose
from bottleneck.analysis.warnings import doubts
from bottleneck.results.records import (
    SCHEMA_VERSION,
    Interval,
    Judgement,
    Measurement,
    Result,
    Stage,
    State,
    Verdict,
)


def judge(measurement: Measurement) -> Judgement:
    """Say what the blocks so far tell, and whether they are enough.

    Args:
        measurement: Everything measured so far; experiments may still lack blocks.

    Returns:
        The state, the efficiency (None before two whole rounds), whether every share is precise, the rounds that
        an undecided state would probably still take, whether the costs of the stages are precise, and whether the
        stage that holds an input-bound job can be named.
    """
    readings = read(measurement)
    costs = Costs(readings)
    present, efficiency, further = _state(readings.log_efficiency())
    return Judgement(
        state=present,
        efficiency=efficiency,
        precise=is_precise(readings),
        further_rounds=further,
        costs_precise=costs_are_precise(readings, costs),
        named=present != "input_bound" or choose(present, attribute(readings, costs), costs).bottleneck is not None,
    )


def analyse(measurement: Measurement) -> Result:
    """Derive the whole result from what was measured: rates, stages, verdict, advice and warnings.

    Args:
        measurement: What was measured, complete or interrupted.

    Returns:
        The result. Every number in it is finite; what the blocks do not support is None.
    """
    readings = read(measurement)
    costs = Costs(readings)
    stages = attribute(readings, costs)
    present, _, _ = _state(readings.log_efficiency())
    choice = choose(present, stages, costs)
    verdict = _verdict(measurement, readings, stages, choice)
    return Result(
        schema_version=SCHEMA_VERSION,
        tool=this_tool(),
        created=measurement.created,
        environment=measurement.environment,
        pipeline=measurement.pipeline,
        experiments=experiments(measurement, readings),
        without=withouts(measurement, readings),
        stages=stages,
        verdict=verdict,
        advice=advise(measurement, readings, stages, verdict),
        evidence={**measurement.evidence, **costs.evidence()},
        warnings=(*doubts(measurement, readings, stages, present, choice), *doubtful_costs(readings, costs)),
        cost=measurement.cost,
    )


def _state(log_efficiency: Spread | None) -> tuple[State, Interval | None, int | None]:
    """Return the state, the efficiency and the rounds that would decide it."""
    efficiency = None if log_efficiency is None else log_efficiency.exponentiated()
    return state(efficiency), efficiency, further_rounds(log_efficiency)


def _verdict(measurement: Measurement, readings: Readings, stages: tuple[Stage, ...], choice: Choice) -> Verdict:
    """Put the verdict together, with its sentence."""
    present, efficiency, further = _state(readings.log_efficiency())
    findings = Findings(
        state=present,
        efficiency=efficiency,
        choice=choice,
        gains={stage.name: stage.gain_if_free for stage in stages if stage.gain_if_free is not None},
        device_samples_per_s=_samples_per_s(readings.device),
        raw_samples_per_s=_samples_per_s(readings.raw),
        rounds=_common_rounds(readings),
        further_rounds=further,
        seconds=measurement.cost.seconds,
    )
    return Verdict(
        state=present,
        bottleneck=choice.bottleneck,
        contributors=choice.contributors,
        efficiency=efficiency,
        headroom=None if efficiency is None else inverse(efficiency),
        sentence=verdict_sentence(findings),
        further_rounds=further,
    )


def inverse(interval: Interval) -> Interval:
    """Return the interval of one over a positive quantity."""
    return Interval(1 / interval.estimate, 1 / interval.high, 1 / interval.low)


def _samples_per_s(series: Series | None) -> float | None:
    return None if series is None else 1 / series.seconds_per_sample


def _common_rounds(readings: Readings) -> int:
    """Return the number of rounds in which both device and raw were measured."""
    if readings.device is None or readings.raw is None:
        return 0
    return len(align((readings.device, readings.raw))[0])
