"""What each stage costs, what the job waits for it, and what it would gain if the stage were free."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.stage_idle_time import waiting_share
from bottleneck.reports.content.io import cold_epoch
from bottleneck.reports.content.step import Part, effect, gain_text, parts
from bottleneck.reports.document import PAGES, Column, Paragraph, Section, Table
from bottleneck.results.format import duration_interval, gain_interval, percent, time_interval
from bottleneck.results.records import Interval, Result, Stage

WORTH_SHOWING = 0.2
"""The share of waiting from which on it is shown."""

_COLUMNS = (
    Column("stage", "name"),
    Column("costs the loader alone", "interval", on=PAGES),
    Column("costs (loader alone)", "interval", on=("verbose",)),
    Column("of the step", "number", on=PAGES),
    Column("exposed", "interval", on=("verbose",)),
    Column("gain if free", "number", on=PAGES),
    Column("gain if free", "number", on=("verbose",)),
    Column("waiting", "number", on=PAGES),
    Column("finding", "finding", on=PAGES),
)
_MEANING = (
    "What a stage costs the loader alone may be hidden behind the train step; of the step is what the job waits for it."
)


def stages_by_interest(result: Result) -> tuple[Stage, ...]:
    """The stages that the verdict names, then the others, from the device outwards."""
    named = [result.verdict.bottleneck, *result.verdict.contributors]
    return tuple(sorted(result.stages, key=lambda s: named.index(s.name) if s.name in named else len(named)))


def worth_showing(share: float | None) -> str:
    """A share of waiting; empty where it is not worth a word."""
    return percent(share) if share is not None and share >= WORTH_SHOWING else ""


def stages(result: Result) -> Iterator[Section]:
    """The table of the stages."""
    ordered = stages_by_interest(result)
    if not any(s.cost_s_per_batch or s.exposed_s_per_batch or s.gain_if_free for s in ordered):
        return
    rows = tuple(_row(result, stage) for stage in ordered)
    marked = frozenset(at for at, stage in enumerate(ordered) if stage.name == result.verdict.bottleneck)
    waiting = [f"{row[0]} is waiting {row[7]}" for row in rows if row[7]]
    note = "Times are per batch; in brackets, 95 % intervals."
    if waiting:
        note += f" Of its time in the workers, {', '.join(waiting)} (disk, network, locks)."
    yield Section(
        "Cost, exposure and gain of each stage",
        (
            Table(_COLUMNS, rows, marked),
            Paragraph(note, "note"),
            Paragraph(_MEANING, "note", on=PAGES),
            Paragraph(cold_epoch(result), "note"),
        ),
    )


def _row(result: Result, stage: Stage) -> tuple[str, ...]:
    part = next((part for part in parts(result) if part.stages == (stage,)), None)
    return (
        stage.name,
        time_interval(stage.cost_s_per_batch),
        duration_interval(stage.cost_s_per_batch),
        part.time if part is not None else "",
        duration_interval(exposed_around(stage, part)),
        gain_text(result, stage),
        gain_interval(stage.gain_if_free),
        worth_showing(waiting_share(stage, result.evidence)),
        effect(result, stage),
    )


def exposed_around(stage: Stage, part: Part | None) -> Interval | None:
    """The interval around the time that every table shows; a file of an older version may have another estimate."""
    found = stage.exposed_s_per_batch
    if found is None or part is None:
        return found
    return Interval(part.seconds, min(found.low, part.seconds), max(found.high, part.seconds))
