"""The tables of stages: one step of the job, the ladder, the cost of each stage, and gains if some were free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bottleneck.analysis.parts import is_sure
from bottleneck.analysis.ranks import sync_gain
from bottleneck.analysis.settings import MARGIN, positive
from bottleneck.reports.answer import on_cpu, part_time, rate_unit
from bottleneck.reports.document import FULL, PAGES, Bar, Column, Items, Paragraph, Section, Table
from bottleneck.reports.evidence import cold_epoch
from bottleneck.reports.inside import worth_showing
from bottleneck.results.format import (
    UNKNOWN,
    at_most,
    count,
    duration,
    duration_interval,
    gain_interval,
    known,
    long_duration,
    names,
    percent,
    rate_with_half_width,
    size,
    time_interval,
)
from bottleneck.results.names import COLLATE, COMPUTE, RAW, SYNC
from bottleneck.results.records import Experiment, Result, Stage, StepPart, WhatIf

NO_EFFECT = "small"
IMPRECISE = "not measured precisely enough"
COSTS_TIME = "also costs time"
FIX_FIRST = "fix this first"
LIMITS = "limits the job"
BY_CLOCKS = "by the workers' clocks"
_BY_ITS_CLOCK = "by its own clock"

_SMALL_GAIN = 1.1
"""A gain that is not sure and at most this is none to look for."""
_SMALL_PART = 0.25
"""Share of a step: a larger one without a gain is not called small."""
_LIKE_ITS_PART = 1.1
"""Factor between a gain and that by a stage's part of the step, above which readers would wonder."""
MAX_BARS = 5
"""Bars of a short report; further stages share one row."""
_HOURS = 100


# --- in words ---------------------------------------------------------------------------------------------


def effect(result: Result, stage: Stage) -> str:
    """Return the effect of a stage on the job, in the same words everywhere; empty for a step that limits nothing."""
    verdict, gain = result.verdict, stage.possible_gain
    if stage.name == verdict.bottleneck:
        return LIMITS if stage.name == COMPUTE else FIX_FIRST
    if stage.name in verdict.contributors:
        return COSTS_TIME
    if stage.inner is None:
        return ""
    if gain is None:
        return {"real": COSTS_TIME, "within_noise": NO_EFFECT}.get(stage.finding, IMPRECISE)
    if gain.low > 1:
        return COSTS_TIME if gain.estimate > MARGIN else NO_EFFECT
    if gain.high <= _SMALL_GAIN:
        return NO_EFFECT
    # If another stage clearly gains more, this one is not the bottleneck, however badly it was measured.
    named = next((s.possible_gain for s in result.stages if s.name == verdict.bottleneck), None)
    return IMPRECISE if named is None or named.low < gain.high else ""


def gain_text(stage: Stage) -> str:
    """Return the gain of a stage that clearly has one; a dash for others."""
    return gain_interval(stage.possible_gain if is_sure(stage.possible_gain) else None)


def _stage_of(result: Result, part: StepPart) -> Stage | None:
    return next((s for s in result.stages if part.stages == (s.name,)), None)


def _marked(result: Result, shown: Sequence[str]) -> frozenset[int]:
    return frozenset(at for at, name in enumerate(shown) if name == result.verdict.bottleneck)


# --- the step ---------------------------------------------------------------------------------------------


def step_bars(result: Result) -> Iterator[Section]:
    """Yield one step of the job as a few bars, the bottleneck marked, with the whole below them."""
    if not result.step:
        return
    shown, rest = _largest(result)
    longest_s = max(part.s_per_batch for part in result.step) or 1.0
    # An interval would take the room of the bars.
    times = [part_time(result, part).partition(" (")[0] for part in shown]
    bars = [Bar(part.s_per_batch / longest_s) for part in shown]
    rows = [(p.name, time, bar, _remark(result, p)) for p, time, bar in zip(shown, times, bars, strict=True)]
    if rest:
        rest_s = sum(part.s_per_batch for part in rest)
        most_s = sum(part.at_most_s or part.s_per_batch for part in rest)
        sure = all(part.at_most_s is None for part in rest)
        rows.append((f"{len(rest)} others", duration(rest_s) if sure else at_most(most_s), Bar(rest_s / longest_s), ""))
    columns = (Column("one step", "code"), Column(_whole_step(result), "number"), Column("", "bar"), Column(""))
    table = Table(columns, tuple(rows), _marked(result, [part.name for part in shown]))
    yield Section("Step", (table, _why_named(result)), folded=False)


def step_table(result: Result) -> Iterator[Section]:
    """Yield the step for a pull request: three columns, which a telephone shows whole."""
    columns = (Column("stage", "code"), Column("of each step", "number"), Column("gain without it", "number"))
    rows = [(part.name, part_time(result, part), _gain(result, part)) for part in result.step]
    marked = _marked(result, [part.name for part in result.step])
    if rows:
        rows.append(("step", _whole_step(result), ""))
    yield Section("", (Table(columns, tuple(rows), marked), _why_named(result)), folded=False)


def _whole_step(result: Result) -> str:
    raw = result.coupled(RAW)
    return duration(raw.seconds_per_batch if raw is not None else None)


def _largest(result: Result) -> tuple[list[StepPart], list[StepPart]]:
    """Return the parts of a short report in their order, and those that it shows together."""
    found = result.step
    if len(found) <= MAX_BARS:
        return list(found), []
    named = (COMPUTE, SYNC, result.verdict.bottleneck)
    ranked = sorted(found, key=lambda part: (part.name in named, part.s_per_batch), reverse=True)
    kept = ranked[: MAX_BARS - 1]
    return [part for part in found if part in kept], [part for part in found if part not in kept]


def _remark(result: Result, part: StepPart) -> str:
    """Return the effect of a part on the job: the mark of the bottleneck, or a gain."""
    if part.name == SYNC:
        free = f"{gain_interval(sync_gain(result.evidence.ranks))} without it"
        return f"← bottleneck: {free}" if result.verdict.bottleneck == SYNC else free
    stage = _stage_of(result, part)
    if stage is None:
        return "not measured apart" if len(part.stages) > 1 else ""
    found, gain = effect(result, stage), gain_text(stage)
    if part.by_clocks and found not in (FIX_FIRST, LIMITS):
        clocks = BY_CLOCKS if result.pipeline.get("num_workers") != 0 else _BY_ITS_CLOCK
        return gain if gain != UNKNOWN else clocks
    free = f"{gain} without it" if gain != UNKNOWN else ""
    if found in (FIX_FIRST, LIMITS):
        return "← " + (f"bottleneck: {free}" if free else "bottleneck")
    if found == IMPRECISE and part.at_most_s is not None:
        return ""  # its time says so
    if found == NO_EFFECT and (part.at_most_s or part.s_per_batch) > _SMALL_PART * result.step[-1].end_s:
        return ""
    return found if found in (NO_EFFECT, IMPRECISE) else free


def _gain(result: Result, part: StepPart) -> str:
    if part.name == SYNC:
        return gain_interval(sync_gain(result.evidence.ranks)).partition(" (")[0]
    stage = _stage_of(result, part)
    return gain_text(stage).partition(" (")[0] if stage is not None else UNKNOWN


def _why_named(result: Result) -> Paragraph:
    """Return the reason for the bottleneck if its part of the step does not show it; empty if it is obvious."""
    why = ""
    named = next((part for part in result.step if part.name == result.verdict.bottleneck), None)
    stage = _stage_of(result, named) if named is not None else None
    if named is not None and stage is not None and named.name != COMPUTE:
        why = _more_than_its_part(result, named, stage) or _why_not_the_longest(result, stage)
        why = why or _written_with_it(result, named, stage) or _not_its_part(result, named, stage)
    return Paragraph(why, "note")


def _more_than_its_part(result: Result, named: StepPart, stage: Stage) -> str:
    """Return the reason for a gain above the stage's part of the step, if it clearly is."""
    if result.pipeline.get("num_workers") == 0:
        return ""  # nothing is hidden where one process does it all
    raw, gain, cost = result.coupled(RAW), stage.possible_gain, stage.cost_s_per_batch
    if gain is None or cost is None or raw is None or not (known(cost.low) and known(cost.estimate)):
        return ""
    whole_s = raw.seconds_per_batch
    if cost.low <= named.s_per_batch or gain.low * (whole_s - named.s_per_batch) <= MARGIN * whole_s:
        return ""
    return (
        f"{named.name} costs the loader {duration(cost.estimate)} a batch, and the train step hides some of it: "
        f"without {named.name}, it would hide more of the other stages instead."
    )


def _why_not_the_longest(result: Result, named: Stage) -> str:
    """Return the reason for a bottleneck other than the stage with the longest bar."""
    longest = _stage_of(result, max(result.step, key=lambda part: part.s_per_batch))
    if longest is None or longest.name in (COMPUTE, named.name):
        return ""
    gain, less = named.possible_gain, longest.possible_gain
    if gain is None or less is None or gain.low <= 1 or gain.estimate <= less.estimate:
        return ""
    return f"The bottleneck is {named.name} all the same: the job gains more without it than without {longest.name}."


def _written_with_it(result: Result, named: StepPart, stage: Stage) -> str:
    """Return the reason for a collation as bottleneck by the workers' clocks, if its part of the step is small."""
    wall_s, batch = stage.wall_s_per_batch, result.evidence.payload.bytes
    if stage.name != COLLATE or not known(wall_s) or not known(batch) or wall_s < 2 * named.s_per_batch:
        return ""
    return (
        f"By the workers' own clocks, collate takes {duration(wall_s)} a batch: it writes {size(batch)} into "
        "shared memory, and so does the replay of a recorded batch. That writing is in the bar of handoff."
    )


def _not_its_part(result: Result, named: StepPart, stage: Stage) -> str:
    """State that a gain does not follow from the part of the step, if that suggests a different one."""
    raw, gain = result.coupled(RAW), stage.possible_gain
    if raw is None or gain is None or not is_sure(gain) or result.pipeline.get("num_workers") == 0:
        return ""
    left_s = raw.seconds_per_batch - named.s_per_batch
    if 1 / _LIKE_ITS_PART <= gain.estimate * left_s / raw.seconds_per_batch <= _LIKE_ITS_PART:
        return ""
    return f"Stages overlap: the gain without {named.name} is measured; it does not follow from its part of the step."


# --- the ladder -------------------------------------------------------------------------------------------


def ladder(result: Result) -> Iterator[Section]:
    """Yield the experiments that apply, from the device outwards, and the time that each adds to the step."""
    rungs = [experiment for experiment in result.experiments if experiment.available]
    by_outer = {stage.outer: stage for stage in result.stages}
    stages = [by_outer.get(rung.name) for rung in rungs]
    speeds = [rung.coupled.samples_per_s for rung in rungs if rung.coupled]
    fastest = max((speed for speed in speeds if speed), default=None)
    rows = tuple(_rung_row(result, rung, stage, fastest) for rung, stage in zip(rungs, stages, strict=True))
    marked = _marked(result, [stage.name if stage is not None else "" for stage in stages])
    columns = (
        Column("cached at", "code"),
        Column("stage", "code"),
        Column(rate_unit(result), "number"),
        Column("", "bar", on=("verbose", "html")),
        Column("step", "number"),
        Column("adds", "number"),
        Column("finding", "finding"),
    )
    yield Section("Ladder", (Table(columns, rows, marked, on=FULL),))


def _rung_row(result: Result, rung: Experiment, stage: Stage | None, fastest: float | None) -> tuple[str | Bar, ...]:
    rate, part = rung.coupled, _part_at(result, rung.name)
    beyond = time_interval(stage.exposed_s_per_batch).partition(" (")[0] if stage is not None else ""
    return (
        rung.name,
        part.name if part is not None else stage.name if stage is not None else "",
        rate_with_half_width(rate),
        Bar(rate.samples_per_s / fastest if rate is not None and fastest else None),
        duration(part.end_s if part is not None else rate.seconds_per_batch if rate is not None else None),
        # Reading from the disk is not part of the step without --cold.
        part_time(result, part) if part is not None else beyond,
        effect(result, stage) if stage is not None else "",
    )


def _part_at(result: Result, outer: str) -> StepPart | None:
    """Return an experiment's part of the step; the train step together with the sharing of gradients."""
    found = [part for part in result.step if part.outer == outer]
    if len(found) < 2:
        return found[0] if found else None
    return replace(found[0], s_per_batch=sum(part.s_per_batch for part in found), end_s=found[-1].end_s)


def not_measured(result: Result) -> Iterator[Section]:
    """Yield the experiments that do not apply and why; those with one reason together."""
    found: dict[str, list[str]] = {}
    for experiment in result.experiments:
        if not experiment.available:
            found.setdefault(experiment.reason or "no reason is known", []).append(experiment.name)
    texts = tuple(f"{', '.join(listed)}: {reason}" for reason, listed in found.items())
    yield Section("Not measured", (Items(texts, "Not measured"),))


# --- what each stage costs --------------------------------------------------------------------------------

_STAGE_COLUMNS = (
    Column("stage", "code"),
    Column("costs the loader alone", "interval", on=PAGES),
    Column("costs (loader alone)", "interval", on=("verbose",)),
    Column("of the step", "number", on=PAGES),
    Column("exposed", "interval", on=("verbose",)),
    Column("gain if free", "number", on=PAGES),
    Column("gain if free", "number", on=("verbose",)),
    Column("waiting", "number", on=PAGES),
    Column("finding", "finding", on=PAGES),
)
_COSTS_ALONE = (
    "The cost of a stage in the loader alone may be hidden behind the train step; 'of the step' is the wait for it."
)


def stages(result: Result) -> Iterator[Section]:
    """Yield the table of the stages: those that the verdict names, then the others, from the device outwards."""
    named = [result.verdict.bottleneck, *result.verdict.contributors]
    ordered = sorted(result.stages, key=lambda s: named.index(s.name) if s.name in named else len(named))
    if not any(s.cost_s_per_batch or s.exposed_s_per_batch or s.gain_if_free for s in ordered):
        return
    rows = tuple(_stage_row(result, stage) for stage in ordered)
    waiting = [f"{row[0]} is waiting {row[7]}" for row in rows if row[7]]
    note = "Times are per batch; in brackets, 95 % intervals."
    if waiting:
        note += f" Of its time in the workers, {', '.join(waiting)} (disk, network, locks)."
    yield Section(
        "Cost, exposure and gain of each stage",
        (
            Table(_STAGE_COLUMNS, rows, _marked(result, [stage.name for stage in ordered])),
            Paragraph(note, "note"),
            Paragraph(_COSTS_ALONE, "note", on=PAGES),
            Paragraph(cold_epoch(result), "note"),
        ),
    )


def _stage_row(result: Result, stage: Stage) -> tuple[str, ...]:
    part = _part_at(result, stage.outer)
    part = part if part is not None and part.stages == (stage.name,) else None
    return (
        stage.name,
        time_interval(stage.cost_s_per_batch),
        duration_interval(stage.cost_s_per_batch),
        part_time(result, part) if part is not None else "",
        duration_interval(part.interval if part is not None else stage.exposed_s_per_batch),
        gain_text(stage),
        gain_interval(stage.gain_if_free),
        worth_showing(stage.waiting_share),
        effect(result, stage),
    )


# --- what if ----------------------------------------------------------------------------------------------


def possible(result: Result) -> Iterator[Section]:
    """Yield the throughput without a stage, without several, and without all of the input."""
    now, found = result.coupled(RAW), result.what_if
    nothing_sure = result.verdict.state == "undecided" and all(not free.stages for free in found)
    if now is None or not found or nothing_sure:
        return
    hours = "hours" if on_cpu(result) else "GPU hours"
    asked = result.evidence.gpu_hour_price
    price = asked if known(asked) and asked > 0 else None
    columns = (
        Column("if it took no time", "code"),
        Column(rate_unit(result), "number"),
        Column("gain", "number"),
        Column("an epoch", "number"),
        Column(f"{_HOURS} {hours} become", "number"),
        Column(f"saved of {count(_HOURS * price)}" if price else "", "number"),
    )
    length = positive(result.pipeline, "dataset_length")
    epoch = long_duration(length / now.samples_per_s) if length is not None else ""
    rows = [("nothing: the unmodified job", count(now.samples_per_s), "", epoch, f"{_HOURS} h", "")]
    rows += [_what_if_row(free, price) for free in found]
    marked = frozenset(at for at, free in enumerate(found, 1) if free.stages == (result.verdict.bottleneck,))
    note = "Measured with the recorded output of these stages and everything else real: no change to them "
    note += "can bring more."
    gaining = {free.stages[0] for free in found if len(free.stages) == 1}
    tried = [stage.name for stage in result.stages if stage.gain_if_free is not None and not stage.is_alternative]
    without_gain = [name for name in tried if name not in gaining]
    if without_gain:
        note += f" No measurable gain alone: {names(without_gain)}."
    yield Section("What if", (Table(columns, tuple(rows), marked), Paragraph(note, "note")), folded=False)


def _what_if_row(free: WhatIf, price: float | None) -> tuple[str, str, str, str, str, str]:
    gain = free.gain.estimate
    return (
        names(free.stages) if free.stages else "all of the input",
        f"up to {count(free.samples_per_s)}",
        gain_interval(free.gain),
        long_duration(free.epoch_s) if free.epoch_s is not None else "",
        f"{count(_HOURS / gain)} h" if gain > 0 else UNKNOWN,
        f"up to {count(_HOURS * price * (1 - 1 / gain))}" if price and gain > 0 else "",
    )


# --- the loop of a script -----------------------------------------------------------------------------------

_LOOP_COLUMNS = (Column("inside the loop", "code"), Column("time a batch", "number"), Column("share", "number"))
_WORTH_SAYING = 0.1
"""Share of the loop after the optimizer's step above which possible reasons are listed."""


def loop(result: Result) -> Iterator[Section]:
    """Yield the parts of `compute` that can be separated from outside the loop."""
    found = result.evidence.loop
    parts = (
        ("until the optimizer's step", found.until_optimizer_s),
        ("the optimizer's step", found.optimizer_s),
        ("after it", found.after_optimizer_s),
    )
    whole_s = sum(seconds or 0.0 for _, seconds in parts)
    if not whole_s:
        return
    rows = tuple((name, duration(seconds), percent((seconds or 0.0) / whole_s)) for name, seconds in parts)
    note = Paragraph(" ".join(_loop_sentences((found.after_optimizer_s or 0.0) / whole_s)), "note")
    yield Section("Inside the loop", (Table(_LOOP_COLUMNS, rows), note))


def _loop_sentences(after_share: float) -> Iterator[str]:
    yield "Time of the host, with the batch already on the device: all of it is in `compute`."
    if after_share >= _WORTH_SAYING:
        yield (
            f"After the optimizer's step comes {percent(after_share)}: logging, saving and plotting in each step, "
            "schedules, callbacks, and waiting for the device to return a number, as in `loss.item()`."
        )
