"""One bar and whether it was met, the tables in which bars are shown, and what the modules that measure share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bottleneck.results.records import Interval


class Named(Protocol):
    """A job of the bench."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def find_by_name(jobs: Iterable[N], name: str) -> N:
    """The job of that name.

    Raises:
        KeyError: There is none; the message lists those there are.
    """
    named = {job.name: job for job in jobs}
    if name not in named:
        raise KeyError(f"{name}: one of {', '.join(named)}")
    return named[name]


def distance_outside(reported: Interval | None, truth: float) -> float:
    """Return the distance of the truth from an interval; 0 within it, infinite if none was reported."""
    if reported is None:
        return float("inf")
    return max(reported.low - truth, truth - reported.high, 0.0)


@dataclass(frozen=True)
class Check:
    """A bar of the design, and what was measured."""

    what: str
    bar: str
    measured: str
    held: bool | None
    """None if there was nothing to compare it with."""
    off: tuple[str, ...] = ()
    """Deviations, one line each; shown below the table."""

    @property
    def missed(self) -> bool:
        """It was compared, and is outside of its bar."""
        return self.held is not None and not self.held

    @property
    def verdict(self) -> str:
        """For the table."""
        return "not compared" if self.held is None else "**missed**" if self.missed else "held"


def checks_table(checks: Iterable[Check]) -> str:
    """The checks as a markdown table."""
    rows = [(check.what, check.bar, check.measured, check.verdict) for check in checks]
    return markdown_table(("what", "bar", "measured", ""), rows)


def off_list(checks: Iterable[Check]) -> str:
    """Return the deviations in lists below the table: a cell of it would be too long to read."""
    blocks = [
        f"Off in '{check.what}':\n\n" + "\n".join(f"- {line}" for line in check.off) for check in checks if check.off
    ]
    return "\n\n".join(blocks)


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table, its columns padded so that it is readable as text too.

    Args:
        headers: Titles of the columns.
        rows: Cells; pipes and line ends in them are escaped.
    """
    cells = [[_cell(text) for text in row] for row in (headers, *rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(headers))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def milliseconds(seconds: float | None) -> str:
    """Return seconds as milliseconds with three figures; a dash for an unknown."""
    return "–" if seconds is None else f"{seconds * 1000:.3g} ms"


def interval_percent(interval: Interval | None) -> str:
    """A share and its interval."""
    if interval is None:
        return "–"
    return f"{interval.estimate:.1%} ({interval.low:.1%} – {interval.high:.1%})"


def percent(share: float | None) -> str:
    """A share as a percentage with one decimal and its sign."""
    return "–" if share is None else f"{share * 100:+.1f} %"


def mebibytes(count: float) -> str:
    """Bytes as MiB."""
    return f"{count / 2**20:,.1f} MiB"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
