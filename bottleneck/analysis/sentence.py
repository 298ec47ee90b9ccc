"""The verdict in words: the answer first, always with the loss and its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bottleneck.analysis.precision import LEAST_ROUNDS, LOSS_SURELY_SMALL, LOSS_WORTH_TOUCHING, loss
from bottleneck.analysis.verdict import Choice
from bottleneck.results.format import count, gain_interval, names, percent, percent_interval, plural
from bottleneck.results.records import Interval, State


@dataclass(frozen=True)
class Findings:
    """What the sentence is made of."""

    state: State
    efficiency: Interval | None
    choice: Choice
    gains: Mapping[str, Interval]
    """Gain if free, by stage."""
    device_samples_per_s: float | None
    raw_samples_per_s: float | None
    rounds: int
    """Rounds in which both device and raw were measured."""
    further_rounds: int | None
    seconds: float
    """What the diagnosis has taken so far."""


def verdict_sentence(findings: Findings) -> str:
    """Return the verdict: two lines, the answer and what it is worth."""
    if findings.efficiency is None:
        return _too_little(findings)
    if findings.state == "input_bound":
        return _input_bound(findings, findings.efficiency)
    if findings.state == "device_bound":
        return _device_bound(findings, findings.efficiency)
    return _undecided(findings, findings.efficiency)


def budget_for(further_rounds: int, rounds: int, seconds: float) -> str | None:
    """Return the `--budget` that holds so many further rounds, such as `90s` or `4m`; None if unknown.

    It takes the whole diagnosis so far as the price of its rounds, so starting and recording are paid twice.
    """
    if rounds < 1 or seconds <= 0:
        return None
    wanted_s = seconds * (1 + further_rounds / rounds)
    if wanted_s <= 120:
        return f"{max(1, math.ceil(wanted_s / 10)) * 10}s"
    return f"{math.ceil(wanted_s / 60)}m"


def _input_bound(findings: Findings, efficiency: Interval) -> str:
    choice = findings.choice
    held = f"The input pipeline holds this job at {percent_interval(efficiency)} of what its device can do."
    if choice.bottleneck is None:
        return f"{held} {_unnamed(choice)} {_bounds(findings)}"
    also = f" Contributing: {names(choice.contributors)}." if choice.contributors else ""
    return f"{held} Bottleneck: {choice.bottleneck}.{also} {_worth(findings)} {_bounds(findings)}"


def _unnamed(choice: Choice) -> str:
    """Return why no stage is named, and what to do about it."""
    if choice.basis == "unresolved":
        return (
            "Which stage does it could not be told: what they cost a batch is less than measuring it takes. Make the "
            "batches larger, and measure again."
        )
    return "Which stage does it could not be told: give it a larger --budget."


def _worth(findings: Findings) -> str:
    """Return what it would gain if the bottleneck were free."""
    stage = findings.choice.bottleneck or ""
    gain = findings.gains.get(stage)
    if gain is None:
        return f"What the job would gain if {stage} were free was not measured."
    free = f"If {stage} were free: {gain_interval(gain)} the throughput"
    if findings.choice.basis == "shared":
        return f"{free}, because another stage then holds the job as much; no stage gains anything by itself."
    if gain.low <= 1:
        return f"{free}, which does not prove that it would gain anything."
    return f"{free}."


def _device_bound(findings: Findings, efficiency: Interval) -> str:
    lost = percent_interval(loss(efficiency))
    return f"The device holds this job: the input pipeline costs it {lost}. Bottleneck: compute. {_bounds(findings)}"


def _undecided(findings: Findings, efficiency: Interval) -> str:
    lost = percent_interval(loss(efficiency))
    line = (
        f"Undecided: the input pipeline costs this job {lost} of its throughput, neither surely over "
        f"{percent(LOSS_WORTH_TOUCHING, 0)} nor surely under {percent(LOSS_SURELY_SMALL, 0)}."
    )
    return f"{line} {_what_decides(findings)} {_bounds(findings)}"


def _what_decides(findings: Findings) -> str:
    if findings.further_rounds is None:
        return "No affordable number of further rounds would decide it."
    budget = budget_for(findings.further_rounds, findings.rounds, findings.seconds)
    how = f": --budget {budget}" if budget else ""
    if findings.rounds < LEAST_ROUNDS:
        return f"{plural(findings.rounds, 'round')} are too few to tell; measure {LEAST_ROUNDS} at least{how}."
    return f"About {plural(findings.further_rounds, 'further round')} would decide it{how}."


def _too_little(findings: Findings) -> str:
    """Return the sentence for fewer than two rounds, from which there is no interval."""
    remedy = "Give it a larger --budget."
    device, raw = findings.device_samples_per_s, findings.raw_samples_per_s
    if device is None or raw is None:
        absent = [name for name, rate in (("device", device), ("raw", raw)) if rate is None]
        were = "was" if len(absent) == 1 else "were"
        return f"Undecided: {names(absent)} {were} not measured, so there is no loss to speak of. {remedy}"
    return (
        f"Undecided: the input pipeline seems to cost this job {percent(1 - raw / device)} of its "
        f"throughput, but fewer than two whole rounds give no interval. {remedy} {_bounds(findings)}"
    )


def _bounds(findings: Findings) -> str:
    device, raw = findings.device_samples_per_s, findings.raw_samples_per_s
    if device is None or raw is None:
        return ""
    return f"Upper bound: {count(device)} samples/s, now {count(raw)}."
