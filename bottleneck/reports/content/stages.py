"""What each stage costs, what the job waits for it, and what it would gain if the stage were free."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.stage_idle_time import waiting_share
from bottleneck.reports.content.io import cold_epoch
from bottleneck.reports.content.ladder import finding
from bottleneck.reports.document import PAGES, Column, Paragraph, Section, Table
from bottleneck.results.format import duration_interval, gain_interval, percent, percent_interval
from bottleneck.results.records import Result, Stage

WORTH_SHOWING = 0.2
"""The share of waiting from which on it is shown."""

_COLUMNS = (
    Column("stage", "name"),
    Column("costs (loader alone)", "interval"),
    Column("exposed", "interval"),
    Column("share of step", "number", on=PAGES),
    Column("gain if free", "number"),
    Column("waiting", "number", on=PAGES),
    Column("finding", "finding", on=PAGES),
)
_MEANING = "A stage costs what the loader alone takes for it; exposed is what the job waits for it."


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
    waiting = [f"{row[0]} is waiting {row[5]}" for row in rows if row[5]]
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
    return (
        stage.name,
        duration_interval(stage.cost_s_per_batch),
        duration_interval(stage.exposed_s_per_batch),
        percent_interval(stage.exposed_share),
        gain_interval(stage.gain_if_free),
        worth_showing(waiting_share(stage, result.evidence)),
        finding(stage),
    )
