"""What a page begins with: the answer on a card, the pipeline as a flow, and what fixing each stage would bring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bottleneck.analysis.gains import step_s, sure_gain_of
from bottleneck.analysis.ranks import called, straggler_of, sync_gain
from bottleneck.analysis.settings import number, positive
from bottleneck.analysis.what_if import rate_now, what_if
from bottleneck.reports.charts.card import Card, Lane, Node
from bottleneck.reports.content.job import a_rank, job_line, machine_line, measured_line, on_cpu, rate_unit, standing
from bottleneck.reports.content.step import Part, parts, takes
from bottleneck.reports.content.verdict import headline, sentences
from bottleneck.reports.document import Column, Figure, Paragraph, Section, Table
from bottleneck.results.format import (
    count,
    duration,
    gain_interval,
    known,
    long_duration,
    names,
    percent,
    percent_interval,
    plural,
)
from bottleneck.results.names import COLD, COMPUTE, RAW, SYNC, goes_beyond_the_worker
from bottleneck.results.records import Interval, Rate, Result, Stage

_DOES = {
    "load": "read and decode",
    "fetch": "dataset[i]",
    "augment": "transforms",
    "finish": "rest of __getitem__",
    "other": "code around your stages",
    "collate": "samples to a batch",
    "handoff": "worker to main process",
    "copy": "to the device",
    "compute": "train step",
}
_HOURS = 100
_VAGUE = 0.25
"""The part of a step from which on a time that may be nothing says nothing."""
_SHORTEST_EPOCH_S, _WHOLE_MINUTES_S, _HOURS_S = 60.0, 600.0, 7200.0


def overview(result: Result) -> Iterator[Section]:
    """The card with the verdict, the flow, and what a change would bring."""
    yield Section("", (Figure("card", card(result)), *map(Paragraph, _verdict(result))), folded=False)
    yield from flow(result)
    yield from _possible(result)


def flow(result: Result) -> Iterator[Section]:
    """The stages in the order in which data passes them, with what each takes."""
    drawn = tuple(_lanes(result))
    if drawn:
        blocks = Figure("flow", drawn), Paragraph(_pace(result), "note")
        yield Section("What each stage takes", blocks, folded=False)


def _verdict(result: Result) -> list[str]:
    """The verdict in full; both efficiencies where it goes by the one over a whole epoch."""
    verdict = result.verdict
    if on_cpu(result):  # a share of what the device can do says nothing where model and workers share the cores
        return headline(result)
    if verdict.judged_by != "epoch_efficiency":
        return sentences(result)
    within, over = percent_interval(verdict.efficiency), percent_interval(verdict.epoch_efficiency)
    return [*sentences(result), f"Efficiency: {within} within an epoch, {over} over a whole one."]


# --- the card ---------------------------------------------------------------------------------------------


def card(result: Result) -> Card:
    """The answer in short: state, now and possible, bottleneck, job, machine, date."""
    headline, claim = _headline(result)
    facts = (
        ("Bottleneck", held_by(result)),
        ("Job", job_line(result)),
        ("Machine", machine_line(result)),
        ("Measured", measured_line(result.created, result.cost.seconds)),
    )
    return Card(standing(result), headline, claim, tuple(fact for fact in facts if fact[1]), tuple(_lanes(result)))


def _headline(result: Result) -> tuple[str, str]:
    """What a manager reads: throughput now and possible; on a CPU first what the bottleneck takes."""
    now, verdict = rate_now(result), result.verdict
    if now is None:
        return "No verdict", ""
    speed = f"{count(now.samples_per_s)} {rate_unit(result)}{a_rank(result)}"
    held = straggler_of(result.evidence.ranks)
    if held is not None:
        return _if_freed(result, now, held.gain, f"{called(held)} held up no other")
    if verdict.bottleneck == SYNC:
        return _if_freed(result, now, sync_gain(result.evidence.ranks), "sharing gradients took no time")
    if verdict.state == "undecided":
        return f"{speed}, and no verdict yet", ""
    if verdict.state == "device_bound":
        least = verdict.judged.low if verdict.judged is not None else 0.0
        bound = f": faster input would gain at most {percent(1 / least - 1)}" if least > 0 else ""
        return speed, f"The train step sets the pace{bound}."
    if verdict.bottleneck is None and verdict.judged_by == "epoch_efficiency":
        return f"{speed} within an epoch", _over_whole_epochs(result, now)
    within = " within an epoch" if verdict.judged_by == "epoch_efficiency" else ""
    stage = _stage(result, verdict.bottleneck)
    gain = sure_gain_of(result, stage) if stage is not None else None
    freed = verdict.bottleneck if gain is not None else "all of the input"
    gain = gain or verdict.headroom
    if gain is None or not known(gain.estimate):
        return speed, ""
    better = f"{count(now.samples_per_s)} → up to {count(now.samples_per_s * gain.estimate)} {rate_unit(result)}"
    bound = f"if {freed} took no time: {gain_interval(gain)} the throughput{within}."
    if stage is not None and on_cpu(result) and stage.cost_s_per_batch:
        shared = "The model and the loading of its data share the CPU's cores."
        return f"{stage.name} takes {_takes(stage.cost_s_per_batch)} a batch", f"{better} {bound} {shared}"
    return better, bound


def _if_freed(result: Result, now: Rate, gain: Interval | None, condition: str) -> tuple[str, str]:
    """What all ranks would make without what holds them."""
    most = now.samples_per_s * (gain.estimate if gain is not None else 1.0)
    better = f"{count(now.samples_per_s)} → up to {count(most)} {rate_unit(result)} a rank"
    return better, f"if {condition}: {gain_interval(gain)} the throughput."


def _over_whole_epochs(result: Result, now: Rate) -> str:
    """What the edges of epochs leave: on a CPU as throughput, of which a share of the device's would say nothing."""
    verdict = result.verdict
    if not on_cpu(result):
        return f"Over whole epochs {percent_interval(verdict.judged)} of what is possible."
    within, over = verdict.efficiency, verdict.epoch_efficiency
    if within is None or over is None or not 0 < over.estimate <= within.estimate:
        return ""
    whole = count(now.samples_per_s * over.estimate / within.estimate)
    return f"{whole} {rate_unit(result)} over whole epochs: the beginning of each epoch costs the rest."


def held_by(result: Result) -> str:
    """The bottleneck, what it takes, and what contributes."""
    verdict = result.verdict
    if verdict.bottleneck is None:
        return ""
    cost_s = result.evidence.ranks.sync.cost_s_per_batch if verdict.bottleneck == SYNC else None
    taken = takes(result, verdict.bottleneck) if cost_s is None else f"{duration(cost_s)} of each step"
    also = f"; also {names(verdict.contributors)}" if verdict.contributors else ""
    return f"{verdict.bottleneck}{f', {taken}' if taken else ''}{also}"


# --- the flow ---------------------------------------------------------------------------------------------


def _lanes(result: Result) -> Iterator[Lane]:
    """Who works on which stages, in the order in which data passes them."""
    stages = [stage for stage in reversed(result.stages) if stage.outer != COLD]
    costs = [stage.cost_s_per_batch for stage in stages]
    longest = max((cost.estimate for cost in costs if cost is not None and known(cost.estimate)), default=0.0)
    workers = number(result.pipeline, "num_workers")
    whose = "Main process" if workers == 0 else "Workers" if workers is None else plural(int(workers), "worker")
    drained = _rate(result, RAW, "drained")
    makes = f"{whose}: {duration(drained.seconds_per_batch)} a batch alone" if drained is not None else whose
    device = "Model" if on_cpu(result) else "Device"
    sides = (
        (makes, [s for s in stages if s.name != COMPUTE and not goes_beyond_the_worker(s.name)]),
        ("On the way", [s for s in stages if goes_beyond_the_worker(s.name)]),
        (device, [s for s in stages if s.name == COMPUTE]),
    )
    for title, found in sides:
        if found:
            yield Lane(title, tuple(_node(result, stage, longest) for stage in found))


def _node(result: Result, stage: Stage, longest_s: float) -> Node:
    cost = stage.cost_s_per_batch
    share = cost.estimate / longest_s if cost is not None and longest_s > 0 and known(cost.estimate) else 0.0
    takes = "not measured" if cost is None else _takes(cost)
    part = _part(result, stage)
    adds = "" if part is None else f"{part.time} of the step"
    if part is not None and part.most_s is not None and part.most_s > _VAGUE * (step_s(result) or 0.0):
        adds = "part of the step unclear"
    hot = stage.name == result.verdict.bottleneck
    return Node(stage.name, _DOES.get(stage.name, ""), takes, adds, min(1.0, max(0.0, share)), hot)


def _pace(result: Result) -> str:
    """What the times add up to, and what sets the pace."""
    now = rate_now(result)
    if now is None:
        return "Times are per batch."
    step = f"a step of the job takes {duration(now.seconds_per_batch)}"
    meaning = "Large: what a stage takes by itself for a batch. Small: what it adds to the step."
    if number(result.pipeline, "num_workers") == 0:
        return f"{meaning} One comes after the other: {step}."
    sides = "Loader and model share the CPU's cores" if on_cpu(result) else "Workers and device work at the same time"
    return f"{meaning} {sides}, and {step}."


def _takes(cost: Interval) -> str:
    """What a stage takes, or what it takes at most where that may be nothing."""
    if not (known(cost.estimate) and known(cost.low) and known(cost.high)):
        return "not measured"
    return duration(cost.estimate) if cost.low > 0 else f"< {duration(cost.high)}" if cost.high > 0 else "≈ 0"


# --- what a change would bring ----------------------------------------------------------------------------


def _possible(result: Result) -> Iterator[Section]:
    now, found = rate_now(result), what_if(result)
    nothing_sure = result.verdict.state == "undecided" and all(not possible.stages for possible in found)
    if now is None or not found or nothing_sure:
        return
    hours = "hours" if on_cpu(result) else "GPU hours"
    asked = result.evidence.gpu_hour_price
    price = asked if known(asked) and asked > 0 else None
    columns = (
        Column("if it took no time", "name"),
        Column(rate_unit(result), "number"),
        Column("gain", "number"),
        Column("an epoch", "number"),
        Column(f"{_HOURS} {hours} become", "number"),
        Column(f"saved of {count(_HOURS * price)}" if price else "", "number"),
    )
    rows = [("nothing: the job as it is", count(now.samples_per_s), "", _epoch(result, now, 1.0), f"{_HOURS} h", "")]
    for possible in found:
        gain = possible.gain
        rows.append(
            (
                names(possible.stages) if possible.stages else "all of the input",
                f"up to {count(now.samples_per_s * gain.estimate)}",
                gain_interval(gain),
                _epoch(result, now, gain.estimate),
                f"{count(_HOURS / gain.estimate)} h",
                f"up to {count(_HOURS * price * (1 - 1 / gain.estimate))}" if price else "",
            )
        )
    named = frozenset(at for at, possible in enumerate(found, 1) if possible.stages == (result.verdict.bottleneck,))
    note = "Measured with recorded output in the place of these stages and everything else at work, so that no change "
    note += f"to them brings more.{_without_gain(result, [p.stages[0] for p in found if len(p.stages) == 1])}"
    yield Section("What if", (Table(columns, tuple(rows), named), Paragraph(note, "note")), folded=False)


def _without_gain(result: Result, gaining: Iterable[str]) -> str:
    """The stages that were tried and of which none is in the table."""
    alone = [s.name for s in result.stages if s.gain_if_free is not None and s.outer != COLD]
    rest = [name for name in alone if name not in set(gaining)]
    return f" No measurable gain by itself: {names(rest)}." if rest else ""


def _epoch(result: Result, now: Rate, gain: float) -> str:
    """What an epoch takes, where that is long enough to matter."""
    length = positive(result.pipeline, "dataset_length")
    if length is None or length / now.samples_per_s < _SHORTEST_EPOCH_S:
        return ""
    seconds = length / (now.samples_per_s * gain)
    if seconds < _WHOLE_MINUTES_S:
        return long_duration(seconds)
    return f"{count(seconds / 60)} min" if seconds < _HOURS_S else f"{count(seconds / 3600)} h"


# --- of the result ----------------------------------------------------------------------------------------


def _stage(result: Result, name: str | None) -> Stage | None:
    return next((stage for stage in result.stages if stage.name == name), None)


def _rate(result: Result, name: str, mode: str) -> Rate | None:
    found: Iterator[Rate | None] = (getattr(e, mode) for e in result.experiments if e.name == name)
    return next((rate for rate in found if rate is not None), None)


def _part(result: Result, stage: Stage | None) -> Part | None:
    """What a stage adds to the step; None where that was not measured by itself."""
    return next((part for part in parts(result) if stage is not None and part.name == stage.name), None)
