"""The experiments from the device outwards, and what each stage adds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bottleneck.reports.document import PAGES, Bar, Bars, Column, Items, Section, Table
from bottleneck.results.format import duration, gain_interval, percent, rate_with_half_width
from bottleneck.results.records import Experiment, Result, Stage

MAX_BARS = 30

_COLUMNS = (
    Column("cached at", "name", on=("text", "html")),
    Column("stage", "name"),
    Column("samples/s", "number"),
    Column("", "bar", on=("text", "markdown")),
    Column("step", "number", on=("text", "html")),
    Column("adds", "number", on=("text", "html")),
    Column("drop", "number", on=PAGES),
    Column("share of step", "number", on=("markdown",)),
    Column("finding", "finding"),
    Column("gain if free", "number", on=("markdown",)),
)


@dataclass(frozen=True)
class Rung:
    """One experiment of the ladder that applies to the job."""

    experiment: Experiment
    stage: Stage | None
    """The stage that it adds to the rung before."""
    fraction: float | None
    """Its coupled throughput as a fraction of the fastest rung's."""
    drop: float | None
    """By which fraction it is slower than the rung before; None for the innermost."""


def rungs(result: Result) -> tuple[Rung, ...]:
    """The experiments that apply, from the device outwards."""
    available = [experiment for experiment in result.experiments if experiment.available]
    speeds = {e.name: e.coupled.samples_per_s for e in available if e.coupled}
    fastest = max((speed for speed in speeds.values() if speed), default=None)
    by_outer = {stage.outer: stage for stage in result.stages}
    made = []
    for experiment in available:
        stage, speed = by_outer.get(experiment.name), speeds.get(experiment.name)
        inner = speeds.get(stage.inner) if stage and stage.inner else None
        made.append(
            Rung(
                experiment=experiment,
                stage=stage,
                fraction=speed / fastest if speed is not None and fastest else None,
                drop=1 - speed / inner if speed is not None and inner else None,
            )
        )
    return tuple(made)


def finding(stage: Stage | None) -> str:
    """The finding of a stage in words; nothing for the innermost, which is no drop."""
    return "" if stage is None or stage.inner is None else stage.finding.replace("_", " ")


def ladder(result: Result) -> Iterator[Section]:
    """The table of the experiments."""
    found = rungs(result)
    named = result.verdict.bottleneck
    marked = frozenset(at for at, rung in enumerate(found) if rung.stage is not None and rung.stage.name == named)
    yield Section("Ladder", (Table(_COLUMNS, tuple(map(_row, found)), marked),), folded=False)


def _row(rung: Rung) -> tuple[str | Bar, ...]:
    rate, stage = rung.experiment.coupled, rung.stage
    exposed, share = (stage.exposed_s_per_batch, stage.exposed_share) if stage else (None, None)
    return (
        rung.experiment.name,
        stage.name if stage else "",
        rate_with_half_width(rate),
        Bar(rung.fraction),
        duration(rate.seconds_per_batch if rate else None),
        duration(exposed.estimate if exposed else None) if stage else "",
        percent(rung.drop),
        percent(share.estimate if share else None),
        finding(stage),
        gain_interval(stage.gain_if_free if stage else None),
    )


def throughput(result: Result) -> Iterator[Section]:
    """The throughputs as a chart of bars."""
    bars = [(rung.experiment.name, rung.experiment.coupled) for rung in rungs(result)[:MAX_BARS]]
    known = tuple((name, rate.samples_per_s) for name, rate in bars if rate and rate.samples_per_s > 0)
    yield Section(
        "Throughput by cache point", (Bars("Throughput with the data cached at each point", "samples/s", known),)
    )


def not_measured(result: Result) -> Iterator[Section]:
    """The experiments that do not apply and why; those with one reason together."""
    names: dict[str, list[str]] = {}
    for experiment in result.experiments:
        if not experiment.available:
            names.setdefault(experiment.reason or "no reason is known", []).append(experiment.name)
    texts = tuple(f"{', '.join(found)}: {reason}" for reason, found in names.items())
    yield Section("Not measured", (Items(texts, "Not measured"),))
