"""The two entry points: the whole result of a measurement, and the short judgement made after every round."""

from __future__ import annotations

from dataclasses import replace

from bottleneck.analysis.advice.advise import advise
from bottleneck.analysis.answer import Answer, find_answer, share
from bottleneck.analysis.estimates.cost_doubts import doubtful_costs
from bottleneck.analysis.estimates.costs import Costs
from bottleneck.analysis.estimates.series import Readings, experiments, read, withouts
from bottleneck.analysis.parts import with_parts
from bottleneck.analysis.rank_trials import compare_ranks
from bottleneck.analysis.ranks import kept_ranks, straggler_of
from bottleneck.analysis.sentence import Findings, verdict_sentence
from bottleneck.analysis.settings import THIS_TOOL, unit_of
from bottleneck.analysis.stopping import costs_are_precise, is_precise
from bottleneck.analysis.warnings import ended_early, find_warnings
from bottleneck.results.names import is_cpu
from bottleneck.results.ranks import NO_TRIALS, RankTrials
from bottleneck.results.records import SCHEMA_VERSION, Advice, Interval, Judgement, Result, Verdict


def judge(measurement: Result) -> Judgement:
    """Say what the blocks so far show, and whether they are enough; experiments may still lack blocks."""
    readings = read(measurement)
    costs = Costs(readings)
    answer = find_answer(measurement, readings, costs)
    return Judgement(
        state=answer.state,
        efficiency=answer.efficiency,
        precise=is_precise(readings),
        further_rounds=answer.further_rounds,
        costs_precise=costs_are_precise(readings, costs),
        named=answer.state != "input_bound" or answer.choice.bottleneck is not None or answer.choice.basis == "epoch",
        bottleneck=answer.choice.bottleneck,
        gain=_sure_gain(answer),
    )


def _sure_gain(answer: Answer) -> float | None:
    gains = (stage.gain_if_free for stage in answer.stages if stage.name == answer.choice.bottleneck)
    gain = next(gains, None)
    return gain.estimate if gain is not None and gain.low > 1 else None


def analyse(measurement: Result, rank_trials: RankTrials = NO_TRIALS) -> Result:
    """Conclude from what was measured, complete or interrupted; a result with conclusions gets new ones.

    Every number in it is finite; what the blocks do not support is None. The warnings stay, also those that an
    analysis added: a record does not say who wrote it.
    """
    readings = read(measurement)
    costs = Costs(readings)
    measurement = compare_ranks(measurement, rank_trials, share(readings.log_efficiency()))
    answer = find_answer(measurement, readings, costs)
    verdict = _verdict(measurement, readings, answer)
    result = replace(
        measurement,
        schema_version=SCHEMA_VERSION,
        tool=THIS_TOOL,
        experiments=experiments(measurement, readings),
        without=withouts(measurement, readings),
        stages=answer.stages,
        verdict=verdict,
        advice=_advice(measurement, readings, answer, verdict),
        evidence=costs.add_to(measurement.evidence),
        warnings=(*find_warnings(measurement, readings, answer, costs.serving), *doubtful_costs(readings, costs)),
        ranks=kept_ranks(measurement.ranks, measurement.evidence),
    )
    return with_parts(result)


def _advice(measurement: Result, readings: Readings, answer: Answer, verdict: Verdict) -> tuple[Advice, ...]:
    """The advice; none on numbers that contradict each other.

    What to do about a stage goes by the job between the edges of its epochs; those have a rule of their own.
    """
    if answer.contradiction is not None:
        return ()
    return advise(measurement, readings, answer.stages, replace(verdict, state=answer.steady_state))


def _verdict(measurement: Result, readings: Readings, answer: Answer) -> Verdict:
    straggler = straggler_of(measurement.evidence.ranks)
    return Verdict(
        state=answer.state,
        bottleneck=answer.choice.bottleneck,
        contributors=answer.choice.contributors,
        efficiency=answer.efficiency,
        headroom=None if answer.efficiency is None else inverse(answer.efficiency),
        sentence=verdict_sentence(_findings(measurement, readings, answer)),
        further_rounds=answer.further_rounds,
        epoch_efficiency=answer.epoch_efficiency,
        judged_by=answer.judged_by,
        straggler=None if straggler is None else straggler.rank,
    )


def _findings(measurement: Result, readings: Readings, answer: Answer) -> Findings:
    seconds, on_cpu = measurement.cost.seconds, is_cpu(measurement.environment.get("device"))
    ranks = measurement.evidence.ranks
    return Findings(
        answer, readings, seconds, ranks, on_cpu=on_cpu, ended_early=ended_early(measurement),
        unit=unit_of(measurement),
    )  # fmt: skip


def inverse(interval: Interval) -> Interval:
    """The interval of one over a positive quantity."""
    return Interval(1 / interval.estimate, 1 / interval.high, 1 / interval.low)
