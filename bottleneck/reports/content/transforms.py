"""Single transforms inside a stage."""

from __future__ import annotations

from collections.abc import Iterator

from bottleneck.analysis.advice.stage_idle_time import share_of
from bottleneck.reports.content.stages import worth_showing
from bottleneck.reports.document import PAGES, Column, Paragraph, Section, Table
from bottleneck.results.evidence import Evidence, TransformSeen
from bottleneck.results.format import duration, frequency, percent
from bottleneck.results.records import Result

MOST_IN_A_TERMINAL = 20

_COLUMNS = (
    Column("where", "path", on=PAGES),
    Column("calls/sample", "number"),
    Column("a call", "number"),
    Column("share", "number"),
    Column("waiting", "number"),
    Column("gives"),
)
_MEANING = "Times are of one call in a worker, outside of the timed rounds; the share is that of its stage."


def transforms(result: Result) -> Iterator[Section]:
    """A table for each stage that has single transforms, in the order in which they are kept."""
    rows: dict[str, list[tuple[str, ...]]] = {}
    for found in result.evidence.transforms:
        rows.setdefault(found.stage or "", []).append(_row(found, result.evidence))
    if not rows:
        return
    tables = [
        Table((Column(f"inside {stage}", "name"), *_COLUMNS), tuple(found), most=MOST_IN_A_TERMINAL)
        for stage, found in rows.items()
    ]
    note = Paragraph(result.evidence.transforms_note or "", "note")
    yield Section("Single transforms", (*tables, note, Paragraph(_MEANING, "note", on=PAGES)))


def _row(found: TransformSeen, evidence: Evidence) -> tuple[str, ...]:
    wall_s, cpu_s = found.wall_s_per_call, found.cpu_s_per_call
    return (
        found.name or "",
        found.path or "",
        frequency(found.calls_per_sample),
        duration(wall_s),
        percent(found.share),
        worth_showing(None if wall_s is None or cpu_s is None else share_of(wall_s, cpu_s, evidence)),
        found.output or "",
    )
