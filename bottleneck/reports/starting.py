"""Starting up: from the beginning of a script to the end of its first step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from bottleneck.analysis.settings import starts_slowly
from bottleneck.reports.document import Column, Paragraph, Section, Table
from bottleneck.results.format import duration, percent
from bottleneck.results.records import Result
from bottleneck.results.starting import StartingLine

_MIN_NAMED = 0.1
"""Share of starting up from which on the sentence names a part."""


def starting_in_words(result: Result) -> str:
    """Return a sentence on the time of starting up; empty if it is short."""
    starting = result.evidence.starting
    if not starts_slowly(starting):
        return ""
    found = [part for part in starting.parts if (part.seconds or 0.0) >= _MIN_NAMED * (starting.seconds or 0.0)]
    ordered = sorted(found, key=lambda part: -(part.seconds or 0.0))
    parts = ", ".join(f"{part.name} {duration(part.seconds)}" for part in ordered)
    return f"Starting up takes {duration(starting.seconds)}: {parts}."


def starting(result: Result) -> Iterator[Section]:
    """Yield the parts of starting up, each with its costliest line, and the start of later epochs."""
    found = result.evidence.starting
    whole_s = found.seconds
    if not starts_slowly(found) or not whole_s:
        return
    lines: dict[str | None, StartingLine] = {}
    for line in found.lines:
        lines.setdefault(line.part, line)
    rows = tuple(
        (part.name or "", duration(part.seconds), percent((part.seconds or 0.0) / whole_s), *_cells(lines, part.name))
        for part in found.parts
    )
    columns = (
        *(Column("starting up", "code"), Column("time", "number"), Column("share", "number")),
        *(Column("costliest line", "path"), Column("where", "path")),
    )
    yield Section("Starting up", (Table(columns, rows), Paragraph(" ".join(_notes(result)), "note")))


def _cells(lines: dict[str | None, StartingLine], part: str | None) -> tuple[str, str]:
    line = lines.get(part)
    if line is None or line.path is None:
        return "", ""
    return line.code or "", f"{PurePath(line.path).name}:{line.line}"


def _notes(result: Result) -> Iterator[str]:
    found, gap = result.evidence.starting, result.evidence.epoch_gap
    if found.bare_worker_s is not None:
        whole = "" if found.full_worker_s is None else f", and in {duration(found.full_worker_s)} with it"
        yield f"A single worker starts in {duration(found.bare_worker_s)} without the dataset{whole}."
    if gap.started_anew and gap.seconds is not None:
        yield f"Each later epoch begins with {duration(gap.seconds)} without a batch, because the workers start again."
