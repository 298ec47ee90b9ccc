"""The verdict in words: the answer first, always with the lost throughput and its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bottleneck.analysis.advice.wall_clock import find_wall_clock, has_much_beside, share_of_steps
from bottleneck.analysis.doubts import ended_early
from bottleneck.analysis.epochs import Epoch
from bottleneck.analysis.ranks import straggler_sentence, sync_sentence
from bottleneck.analysis.readings import Readings
from bottleneck.analysis.settings import LOSS_CLEARLY_SMALL, LOSS_WORTH_TOUCHING, unit_of
from bottleneck.analysis.verdict import MIN_ROUNDS, Answer, loss
from bottleneck.results.format import count, duration, gain, gain_interval, names, percent, percent_interval, plural
from bottleneck.results.names import COPY, DEVICE, RAW, is_cpu
from bottleneck.results.records import Interval, Result

_MIN_COPY_SHARE = 0.01
"""Share of a step below which the copy to the device is not worth a sentence."""


@dataclass(frozen=True)
class _Context:
    answer: Answer
    readings: Readings
    seconds: float
    """Seconds of the diagnosis so far."""
    on_cpu: bool
    """The train step runs on the cores that the workers use as well."""
    ended_early: bool
    """It was interrupted, or the job failed: a larger budget would not have helped."""
    unit: str
    """Unit of the throughput."""
    steps: float | None
    """The part of a script's wall clock that goes into steps."""


def verdict_sentence(measurement: Result, readings: Readings, answer: Answer) -> str:
    """Return the verdict: the answer and its value; for many ranks first the limit of all of them."""
    ranks, raw = measurement.evidence.ranks, readings.raw
    parts = () if raw is None else find_wall_clock(measurement, raw.seconds_per_batch, answer.epoch)
    context = _Context(
        answer,
        readings,
        seconds=measurement.cost.seconds,
        on_cpu=is_cpu(measurement.environment.get("device")),
        ended_early=ended_early(measurement),
        unit=unit_of(measurement),
        steps=share_of_steps(parts),
    )
    shared, one = sync_sentence(ranks), _sentence_of_one(context)
    told = (shared, one) if answer.choice.basis == "sync" else (one, shared)
    return " ".join(filter(None, (straggler_sentence(ranks), *told)))


def _sentence_of_one(context: _Context) -> str:
    """Return the verdict on one rank, which is that on a job of one process."""
    answer = context.answer
    if answer.contradiction is not None:
        what = answer.contradiction.what
        return f"Undecided: {answer.contradiction.lead}. {what}. {answer.contradiction.remedy}"
    if answer.efficiency is None:
        return _too_little(context)
    if answer.choice.basis == "sync":
        also = f" Contributing: {names(answer.choice.contributors)}." if answer.choice.contributors else ""
        costs = f"In addition, {_costs_it(answer.efficiency)}"
        return f"Bottleneck: {answer.choice.bottleneck}.{also} {costs}. {_bounds(context)}"
    if answer.judged_by == "epoch_efficiency" and answer.epoch is not None and answer.epoch_efficiency is not None:
        return _over_an_epoch(context, answer.epoch, answer.epoch_efficiency, answer.efficiency)
    if answer.state == "input_bound" and context.on_cpu:
        return f"{_ON_CPU} {_named(context)} {_now(context)}".rstrip()
    if answer.state == "input_bound":
        return f"{_input_limits(answer.efficiency)}. {_named(context)} {_bounds(context)}"
    if answer.state == "device_bound":
        found = f"{_step_limits(context)}; {_costs_it(answer.efficiency)}.{_of_it_copied(context)}"
        return f"{found} Bottleneck: compute. {_bounds(context)}"
    return f"{_undecided(answer.efficiency)}. {_what_decides(context)} {_bounds(context)}"


def budget_for(further_rounds: int, rounds: int, seconds: float) -> str | None:
    """Return the `--budget` for a number of further rounds, such as `90s` or `4m`; None if unknown.

    It takes the whole diagnosis so far as the price of its rounds, so starting and recording are paid twice.
    """
    if rounds < 1 or seconds <= 0:
        return None
    wanted_s = seconds * (1 + further_rounds / rounds)
    if wanted_s <= 120:
        return f"{max(1, math.ceil(wanted_s / 10)) * 10}s"
    return f"{math.ceil(wanted_s / 60)}m"


def _step_limits(context: _Context) -> str:
    if not has_much_beside(context.steps):
        return "The train step limits this job"
    return f"Within its steps, {percent(context.steps)} of the wall clock, the train step limits this job"


def _input_limits(efficiency: Interval) -> str:
    return f"The input pipeline limits this job to {percent_interval(efficiency)} of what its device can do"


_ON_CPU = "The job waits for its data. It trains on the CPU, where model and workers share the cores."
"""The throughput without workers says little about such a job."""


def _now(context: _Context, epoch: Epoch | None = None) -> str:
    raw = context.readings.raw
    if raw is None:
        return ""
    now = raw.samples_per_s
    if epoch is None:
        return f"Now {count(now)} {context.unit}."
    return f"Now {count(_over(epoch, now))} {context.unit} ({count(now)} within an epoch)."


def _over(epoch: Epoch, now: float) -> float:
    """Return the throughput over a whole epoch; `now` is that between its edges."""
    return now * epoch.batches * epoch.step_s / epoch.seconds


def _costs_it(efficiency: Interval) -> str:
    return f"the input pipeline costs {percent_interval(loss(efficiency))} of its throughput"


def _of_it_copied(context: _Context) -> str:
    """Return how much of the step of a device-bound job is the copy to the device; empty if under a hundredth."""
    copy = next((stage for stage in context.answer.stages if stage.name == COPY), None)
    exposed = copy.exposed_s_per_batch if copy is not None else None
    raw = context.readings.raw
    if exposed is None or raw is None or exposed.low <= 0 or exposed.estimate < _MIN_COPY_SHARE * raw.seconds_per_batch:
        return ""
    return f" The copy to the device is {duration(exposed.estimate)} of each {duration(raw.seconds_per_batch)} step."


def _undecided(efficiency: Interval) -> str:
    return (
        f"Undecided: the input pipeline costs this job {percent_interval(loss(efficiency))} of its throughput, which "
        f"is neither clearly over {percent(LOSS_WORTH_TOUCHING, 0)} nor clearly under {percent(LOSS_CLEARLY_SMALL, 0)}"
    )


def _over_an_epoch(context: _Context, epoch: Epoch, whole: Interval, steady: Interval) -> str:
    """Return the sentence if the start of each epoch costs the job a visible amount."""
    answer = context.answer
    gap = f"Each epoch of {duration(epoch.seconds)} starts with {duration(epoch.gap_s.estimate)} without training"
    edge = f"{gap}: {_reason(epoch)}."
    if answer.state == "input_bound" and context.on_cpu:
        what = _edges(epoch) if answer.choice.basis == "epoch" else _named(context)
        return f"{_ON_CPU} {edge} {what} {_now(context, epoch)}"
    edge = f"{edge} Within an epoch it reaches {percent_interval(steady)}."
    bounds = _bounds(context, epoch)
    if answer.state == "device_bound":
        held = f"{_step_limits(context)}; over a whole epoch {_costs_it(whole)}"
        return f"{held}. Bottleneck: compute. {edge} {bounds}"
    if answer.state == "undecided":
        return f"{_undecided(whole)}, over a whole epoch. {edge} {_what_decides(context)} {bounds}"
    if answer.choice.basis == "epoch":
        return f"{_input_limits(whole)}, over a whole epoch. {edge} {_edges(epoch)} {bounds}"
    return f"{_input_limits(whole)}, over a whole epoch. {edge} {_named(context)} {bounds}"


def _edges(epoch: Epoch) -> str:
    free = epoch.seconds / (epoch.batches * epoch.step_s)
    return f"Bottleneck: not a stage, but the start of each epoch. If it were free: {gain(free)} the throughput."


def _reason(epoch: Epoch) -> str:
    """Return the main part of the start of an epoch."""
    parts = {
        "its workers start": epoch.start_s,
        "no batch is ready": epoch.first_batch_s,
        "the order of the samples is drawn": epoch.order_s,
    }
    return max(parts, key=lambda part: parts[part])


def _named(context: _Context) -> str:
    choice = context.answer.choice
    if choice.bottleneck is None and choice.basis == "unresolved":
        return (
            "The limiting stage cannot be resolved: the stages cost less per batch than measuring them takes. Make the "
            "batches larger and measure again."
        )
    if choice.bottleneck is None:
        return f"The limiting stage cannot be resolved yet. {_remedy(context)}"
    also = f" Contributing: {names(choice.contributors)}." if choice.contributors else ""
    return f"Bottleneck: {choice.bottleneck}.{also} {_worth(context.answer, choice.bottleneck)}"


def _remedy(context: _Context) -> str:
    """Return advice for a measurement that was too short."""
    return _ENDED_EARLY if context.ended_early else "Give it a larger --budget."


_ENDED_EARLY = "The diagnosis ended early; a warning says why."


def _worth(answer: Answer, bottleneck: str) -> str:
    """Return a sentence on the gain if the bottleneck were free."""
    gained = next((stage.gain_if_free for stage in answer.stages if stage.name == bottleneck), None)
    if answer.choice.basis == "clock":
        clocks_s = {stage.name: stage.wall_s_per_batch or 0.0 for stage in answer.stages}
        takes = percent(clocks_s[bottleneck] / sum(clocks_s.values()))
        return f"It takes {takes} of the loader's time; the gain without it is not known precisely."
    if gained is None:
        return f"The gain if {bottleneck} were free was not measured."
    within = " within an epoch" if answer.judged_by == "epoch_efficiency" else ""
    free = f"If {bottleneck} were free: {gain_interval(gained)} the throughput{within}"
    if answer.choice.basis == "shared":
        return f"{free}, because another stage then limits the job as much; no single stage brings a gain."
    if gained.low <= 1:
        return f"{free}, which does not prove a gain."
    return f"{free}."


def _what_decides(context: _Context) -> str:
    further_rounds = context.answer.further_rounds
    if further_rounds is None:
        return "No affordable number of further rounds would decide it."
    rounds = context.readings.common_rounds
    if context.ended_early:
        return _ENDED_EARLY
    budget = budget_for(further_rounds, rounds, context.seconds)
    how = f": --budget {budget}" if budget else ""
    if rounds < MIN_ROUNDS:
        return f"{plural(rounds, 'round')} are too few; measure at least {MIN_ROUNDS}{how}."
    return f"About {plural(further_rounds, 'further round')} would decide it{how}."


def _too_little(context: _Context) -> str:
    """Return the sentence for fewer than two rounds, from which there is no interval."""
    remedy = _remedy(context)
    device, raw = context.readings.device, context.readings.raw
    if device is None or raw is None:
        absent = [name for name in (DEVICE, RAW) if name not in context.readings.coupled]
        were = "was" if len(absent) == 1 else "were"
        return f"Undecided: {names(absent)} {were} not measured, so the cost of the input is unknown. {remedy}"
    lost = percent(1 - raw.samples_per_s / device.samples_per_s)
    return (
        f"Undecided: the input pipeline seems to cost this job {lost} of its throughput, but fewer than two complete "
        f"rounds give no interval. {remedy} {_bounds(context)}"
    )


def _bounds(context: _Context, epoch: Epoch | None = None) -> str:
    if context.readings.upper_bound is None or context.readings.raw is None:
        return ""
    now = context.readings.raw.samples_per_s
    most = f"{count(max(now, context.readings.upper_bound[1].samples_per_s))} {context.unit}"
    if epoch is None:
        return f"Upper bound: {most}, now {count(now)}."
    return f"Upper bound: {most}, now {count(_over(epoch, now))} ({count(now)} within an epoch)."
