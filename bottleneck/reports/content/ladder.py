"""The experiments from the device outwards, and what each stage adds to the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bottleneck.analysis.gains import gain_of, step_s
from bottleneck.analysis.margin import MARGIN
from bottleneck.analysis.ranks import sync_gain
from bottleneck.reports.content.job import rate_unit
from bottleneck.reports.content.step import (
    FIX_FIRST,
    HOLDS,
    IMPRECISE,
    NO_EFFECT,
    Part,
    effect,
    gain_text,
    parts,
    parts_with_sync,
)
from bottleneck.reports.document import FULL, Bar, Column, Items, Paragraph, Section, Table
from bottleneck.results.format import UNKNOWN, duration, gain_interval, known, rate_with_half_width, time_interval
from bottleneck.results.names import COMPUTE, SYNC
from bottleneck.results.records import Experiment, Result, Stage

MOST_BARS = 5
"""Of a short report; further stages are one row together."""


@dataclass(frozen=True)
class Rung:
    """One experiment of the ladder that applies to the job."""

    experiment: Experiment
    stage: Stage | None
    """The stage that it adds to the rung before."""
    fraction: float | None
    """Its coupled throughput as a fraction of the fastest rung's."""


def rungs(result: Result) -> tuple[Rung, ...]:
    """The experiments that apply, from the device outwards."""
    available = [experiment for experiment in result.experiments if experiment.available]
    speeds = {e.name: e.coupled.samples_per_s for e in available if e.coupled}
    fastest = max((speed for speed in speeds.values() if speed), default=None)
    by_outer = {stage.outer: stage for stage in result.stages}
    made = []
    for experiment in available:
        stage, speed = by_outer.get(experiment.name), speeds.get(experiment.name)
        fraction = speed / fastest if speed is not None and fastest else None
        made.append(Rung(experiment, stage, fraction))
    return tuple(made)


def ladder(result: Result) -> Iterator[Section]:
    """The table of the experiments."""
    found = rungs(result)
    named = result.verdict.bottleneck
    marked = frozenset(at for at, rung in enumerate(found) if rung.stage is not None and rung.stage.name == named)
    by_outer = {part.outer: part for part in parts(result)}
    rows = tuple(_row(result, rung, by_outer.get(rung.experiment.name)) for rung in found)
    columns = (
        Column("cached at", "name"),
        Column("stage", "name"),
        Column(rate_unit(result), "number"),
        Column("", "bar", on=("verbose", "html")),
        Column("step", "number"),
        Column("adds", "number"),
        Column("finding", "finding"),
    )
    yield Section("Ladder", (Table(columns, rows, marked, on=FULL),))


def _row(result: Result, rung: Rung, part: Part | None) -> tuple[str | Bar, ...]:
    rate, stage = rung.experiment.coupled, rung.stage
    step_s = part.end_s if part is not None else rate.seconds_per_batch if rate is not None else None
    return (
        rung.experiment.name,
        part.name if part is not None else stage.name if stage is not None else "",
        rate_with_half_width(rate),
        Bar(rung.fraction),
        duration(step_s),
        part.time if part is not None else _beyond(stage),
        effect(result, stage) if stage is not None else "",
    )


def _beyond(stage: Stage | None) -> str:
    """What a stage adds that is no part of the step as it is: reading from the disk."""
    return time_interval(stage.exposed_s_per_batch).partition(" (")[0] if stage is not None else ""


# --- the step in short ------------------------------------------------------------------------------------


def step_bars(result: Result) -> Iterator[Section]:
    """One step of the job as a few bars, the bottleneck marked, with the whole below them."""
    found = parts_with_sync(result)
    if not found:
        return
    shown, rest = _largest(result, found)
    longest_s = max(part.seconds for part in found)
    rows = [(part.name, part.time, Bar(part.seconds / longest_s), _remark(result, part)) for part in shown]
    if rest:
        rest_s = sum(part.seconds for part in rest)
        rows.append((f"{len(rest)} others", duration(rest_s), Bar(rest_s / longest_s), ""))
    marked = frozenset(at for at, part in enumerate(shown) if part.name == result.verdict.bottleneck)
    columns = (Column("one step", "name"), Column(duration(step_s(result)), "number"), Column("", "bar"), Column(""))
    yield Section("Step", (Table(columns, tuple(rows), marked), _why_named(result, found)), folded=False)


def _why_named(result: Result, found: Sequence[Part]) -> Paragraph:
    """Why the stage that is named is the bottleneck, whatever its part of the step; empty where nobody would ask."""
    why = ""
    named = next((part for part in found if part.name == result.verdict.bottleneck and len(part.stages) == 1), None)
    if named is not None and named.name != COMPUTE:
        longest = max(found, key=lambda part: part.seconds)
        why = _more_than_its_part(result, named) or _why_not_the_longest(result, named.stages[0], longest)
    return Paragraph(why, "note")


def _more_than_its_part(result: Result, named: Part) -> str:
    """Why a job gains more without a stage than the part of the step that the stage adds, where it surely does."""
    if result.pipeline.get("num_workers") == 0:
        return ""  # nothing is hidden where one process does it all
    stage, whole_s = named.stages[0], step_s(result)
    gain, cost = gain_of(result, stage), stage.cost_s_per_batch
    if gain is None or cost is None or whole_s is None or not (known(cost.low) and known(cost.estimate)):
        return ""
    if cost.low <= named.seconds or gain.low * (whole_s - named.seconds) <= MARGIN * whole_s:
        return ""
    return (
        f"{named.name} costs the loader {duration(cost.estimate)} a batch, and the train step hides some of it: "
        f"without {named.name}, it would hide more of the other stages instead."
    )


def _why_not_the_longest(result: Result, named: Stage, longest: Part) -> str:
    """Why the bottleneck is another stage than that of the longest bar."""
    if len(longest.stages) != 1 or longest.name in (COMPUTE, named.name):
        return ""
    gain, less = gain_of(result, named), gain_of(result, longest.stages[0])
    if gain is None or less is None or gain.low <= 1 or gain.estimate <= less.estimate:
        return ""
    return f"The bottleneck is {named.name} all the same: the job gains more without it than without {longest.name}."


def _largest(result: Result, found: tuple[Part, ...]) -> tuple[list[Part], list[Part]]:
    """The parts of a short report in their order, and those that it shows together."""
    if len(found) <= MOST_BARS:
        return list(found), []
    named = (COMPUTE, SYNC, result.verdict.bottleneck)
    ranked = sorted(found, key=lambda part: (part.name in named, part.seconds), reverse=True)
    kept = ranked[: MOST_BARS - 1]
    return [part for part in found if part in kept], [part for part in found if part not in kept]


def _remark(result: Result, part: Part) -> str:
    """What a part means for the job: the mark of the bottleneck, or a gain."""
    if part.name == SYNC:
        free = f"{gain_interval(sync_gain(result.evidence.ranks))} without it"
        return f"← bottleneck: {free}" if result.verdict.bottleneck == SYNC else free
    if len(part.stages) != 1:
        return "" if len(part.stages) < 2 else "not measured apart"
    stage = part.stages[0]
    found, gain = effect(result, stage), gain_text(result, stage)
    free = f"{gain} without it" if gain != UNKNOWN else ""
    if found in (FIX_FIRST, HOLDS):
        return "← " + (f"bottleneck: {free}" if free else "bottleneck")
    return found if found in (NO_EFFECT, IMPRECISE) else free


def step_table(result: Result) -> Iterator[Section]:
    """The step for a pull request: three columns, which a telephone shows whole."""
    found = parts_with_sync(result)
    columns = (Column("stage", "name"), Column("of each step", "number"), Column("gain without it", "number"))
    rows = [(part.name, part.time, _gain(result, part)) for part in found]
    marked = frozenset(at for at, part in enumerate(found) if part.name == result.verdict.bottleneck)
    if rows:
        rows.append(("step", duration(step_s(result)), ""))
    yield Section("", (Table(columns, tuple(rows), marked), _why_named(result, found)), folded=False)


def _gain(result: Result, part: Part) -> str:
    if part.name == SYNC:
        return gain_interval(sync_gain(result.evidence.ranks)).partition(" (")[0]
    return gain_text(result, part.stages[0]).partition(" (")[0] if len(part.stages) == 1 else UNKNOWN


def not_measured(result: Result) -> Iterator[Section]:
    """The experiments that do not apply and why; those with one reason together."""
    names: dict[str, list[str]] = {}
    for experiment in result.experiments:
        if not experiment.available:
            names.setdefault(experiment.reason or "no reason is known", []).append(experiment.name)
    texts = tuple(f"{', '.join(found)}: {reason}" for reason, found in names.items())
    yield Section("Not measured", (Items(texts, "Not measured"),))
