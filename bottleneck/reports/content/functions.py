"""The functions of a profile with the most own time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bottleneck.reports.document import PAGES, Column, Form, Paragraph, Section, Table
from bottleneck.results.evidence import FunctionSeen, Profile
from bottleneck.results.format import percent, whole
from bottleneck.results.records import Result

WORTH_SHOWING = 0.005
"""The share of the samples from which on a function is shown."""
MOST_IN_A_TERMINAL = 5


def functions(result: Result) -> Iterator[Section]:
    """Those of the workers' code, the most own time first; a terminal shows those of the bottleneck."""
    shown = [f for f in result.evidence.profile.functions if f.own_share is not None and f.own_share >= WORTH_SHOWING]
    if not shown:
        return
    named = result.verdict.bottleneck
    inside = any(found.stage == named for found in shown)
    # Where stacks do not tell the stage, a function may well belong to this one.
    chosen = [found for found in shown if found.stage in (named, None)] if inside else shown
    yield Section(
        "Functions with the most own time",
        (
            _table(f"functions in {named}" if inside else "functions", chosen[:MOST_IN_A_TERMINAL], on=("verbose",)),
            _table("function", shown, on=PAGES),
            Paragraph(_sampling(result.evidence.profile), "note"),
        ),
    )


def _table(title: str, functions: Sequence[FunctionSeen], on: tuple[Form, ...]) -> Table:
    columns = (
        Column(title, "path"),
        Column("stage", "name", on=PAGES),
        Column("own time", "number"),
        Column("where", "path"),
    )
    return Table(columns, tuple(map(_row, functions)), on=on)


def _row(found: FunctionSeen) -> tuple[str, ...]:
    file = found.file or ""
    return (
        found.function or "",
        found.stage or "",
        percent(found.own_share),
        file if found.line is None else f"{file}:{found.line}",
    )


def _sampling(profile: Profile) -> str:
    by = "a sampler inside the workers" if profile.sampler == "in-process" else "py-spy"
    return f"Own time is the share of {whole(profile.samples)} samples of the loader's code, taken by {by}."
