"""The two entry points: the whole result of a measurement, and the short judgement made after every round."""

from __future__ import annotations

from dataclasses import replace

from bottleneck.analysis.advice.advise import LOOP_IDS, advise
from bottleneck.analysis.advice.wall_clock import find_wall_clock, share_elsewhere
from bottleneck.analysis.costs import Costs
from bottleneck.analysis.doubts import find_warnings
from bottleneck.analysis.epochs import find_epoch
from bottleneck.analysis.joined import with_stages_left
from bottleneck.analysis.parts import with_parts
from bottleneck.analysis.predictions import expected_s, likely_stages
from bottleneck.analysis.rank_trials import compare_ranks
from bottleneck.analysis.ranks import kept_ranks, straggler_of
from bottleneck.analysis.readings import Readings, experiments, read, withouts
from bottleneck.analysis.sentence import verdict_sentence
from bottleneck.analysis.settings import THIS_TOOL, with_price
from bottleneck.analysis.stopping import costs_are_precise, find_leaning, is_of_use, is_precise, settled_stages, stands
from bottleneck.analysis.verdict import MIN_ROUNDS, Answer, find_answer, share
from bottleneck.results.evidence import Evidence
from bottleneck.results.records import (
    NO_TRIALS,
    SCHEMA_VERSION,
    Advice,
    Judgement,
    RankTrials,
    Result,
    UpperBound,
    Verdict,
)


def judge(measurement: Result) -> Judgement:
    """Judge the blocks so far, and whether they are enough; experiments may still lack blocks."""
    readings = read(measurement)
    costs = Costs(readings)
    answer = find_answer(measurement, readings, costs)
    stood, choice = stands(readings, costs, answer), answer.choice
    by_clock = choice.basis == "clock"  # which does for an answer, and what time is left goes into gains
    return Judgement(
        state=answer.state,
        efficiency=answer.efficiency,
        precise=is_precise(readings),
        costs_precise=costs_are_precise(readings, costs),
        named=answer.state != "input_bound" or (bool(choice.bottleneck) and not by_clock) or choice.basis == "epoch",
        stands=stood,
        settled=stood and is_of_use(answer),
        is_elsewhere=_is_elsewhere(measurement, readings, answer),
        bottleneck=answer.choice.bottleneck,
        settled_stages=settled_stages(readings, costs, answer.stages),
        leaning=find_leaning(readings, costs, answer),
        likely_stages=likely_stages(readings, answer.choice),
        expected_s=expected_s(readings),
    )


def _is_elsewhere(measurement: Result, readings: Readings, answer: Answer) -> bool:
    """Return True if other parts of a script's loop take more of the wall clock than the input may at most.

    Those parts come first in the advice, whichever state and name further rounds would find.
    """
    if answer.efficiency is None or readings.raw is None:
        return False
    at_most = 1 - answer.efficiency.low
    return readings.common_rounds >= MIN_ROUNDS and at_most < share_elsewhere(
        measurement, readings.raw.seconds_per_batch
    )


def analyse(measurement: Result, rank_trials: RankTrials = NO_TRIALS) -> Result:
    """Draw conclusions from a measurement, complete or interrupted; a result with conclusions gets new ones.

    Every number in it is finite; what the blocks do not support is None. The warnings stay, also those that an
    analysis added: a record does not say who wrote it.
    """
    measurement = with_stages_left(measurement)
    readings = read(measurement)
    costs = Costs(readings)
    measurement = compare_ranks(measurement, rank_trials, share(readings.log_efficiency()))
    answer = find_answer(measurement, readings, costs)
    answer = replace(answer, settled=stands(readings, costs, answer) and is_of_use(answer))
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
        evidence=_evidence(measurement, readings, costs),
        warnings=find_warnings(measurement, readings, answer, costs),
        ranks=kept_ranks(measurement.ranks, measurement.evidence),
    )
    price = result.evidence.gpu_hour_price
    return with_parts(result if price is None else with_price(result, price))


def _advice(measurement: Result, readings: Readings, answer: Answer, verdict: Verdict) -> tuple[Advice, ...]:
    """Return the advice; if numbers contradict each other, only that on a script's loop, which uses other clocks.

    What to do about a stage goes by the job between the edges of its epochs; those have a rule of their own.
    """
    given = advise(measurement, readings, answer.stages, replace(verdict, state=answer.steady_state))
    return given if answer.contradiction is None else tuple(one for one in given if one.id in LOOP_IDS)


def _evidence(measurement: Result, readings: Readings, costs: Costs) -> Evidence:
    evidence, raw = costs.add_to(measurement.evidence), readings.raw
    if raw is None:
        return evidence
    epoch = find_epoch(readings, evidence, measurement.pipeline)
    return replace(evidence, wall_clock=find_wall_clock(measurement, raw.seconds_per_batch, epoch))


def _verdict(measurement: Result, readings: Readings, answer: Answer) -> Verdict:
    straggler, bound = straggler_of(measurement.evidence.ranks), readings.upper_bound
    return Verdict(
        state=answer.state,
        bottleneck=answer.choice.bottleneck,
        contributors=answer.choice.contributors,
        efficiency=answer.efficiency,
        headroom=None if answer.efficiency is None else answer.efficiency.mapped(lambda share: 1 / share),
        sentence=verdict_sentence(measurement, readings, answer),
        further_rounds=answer.further_rounds,
        epoch_efficiency=answer.epoch_efficiency,
        judged_by=answer.judged_by,
        straggler=None if straggler is None else straggler.rank,
        upper_bound=None if bound is None else UpperBound(bound[0], bound[1].samples_per_s),
    )
