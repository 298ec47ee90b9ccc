"""Contents of a report, apart from its format: sections of paragraphs, lists, tables, steps and figures.

All texts are unescaped, the user's among them: each writer makes them safe to show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from bottleneck.results.format import known

Form = Literal["text", "verbose", "markdown", "html"]
"""A short report for a terminal, a long one, and two for pages."""
ALL: tuple[Form, ...] = ("text", "verbose", "markdown", "html")
TERMINAL: tuple[Form, ...] = ("text", "verbose")
PAGES: tuple[Form, ...] = ("markdown", "html")
FULL: tuple[Form, ...] = ("verbose", *PAGES)
"""Forms with room for everything."""

_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"


@dataclass(frozen=True)
class Bar:
    """A cell with a bar, as long as the writer has room."""

    fraction: float | None
    """Part of the longest; None if it is unknown, or has no meaning."""

    def text(self, width: int) -> str:
        """Return at most `width` block characters, in steps of an eighth; empty if nothing is known."""
        if width <= 0 or not known(self.fraction):
            return ""
        eighths = round(min(1.0, max(0.0, self.fraction)) * width * 8)
        if eighths == 0 and self.fraction > 0:
            eighths = 1  # little is not nothing
        whole, rest = divmod(eighths, 8)
        return _FULL * whole + (_EIGHTHS[rest] if rest else "")


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    kind: Literal["code", "path", "text", "number", "interval", "finding", "bar"] = "text"
    """Kind of the cells. An interval is in brackets, and left out where space is short."""
    on: tuple[Form, ...] = ALL

    @property
    def is_numeric(self) -> bool:
        """True if it is aligned to the right, and never cut."""
        return self.kind in ("number", "interval")


@dataclass(frozen=True, kw_only=True)
class _Block:
    on: tuple[Form, ...] = ALL
    """Forms that show it."""


@dataclass(frozen=True)
class Paragraph(_Block):
    """A paragraph. The answer is the most important one of its report, a note explains the block above it.

    A state begins with a coloured word, and a heading is one inside a section.
    """

    text: str
    role: Literal["plain", "answer", "note", "small", "state", "heading"] = "plain"


@dataclass(frozen=True)
class Items(_Block):
    """A list of sentences; a terminal begins each with the label, which other formats have as their title."""

    texts: tuple[str, ...]
    label: str = ""
    warn: bool = False


@dataclass(frozen=True)
class Table(_Block):
    """A table, which is left out if it has no rows; so is a column without content."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str | Bar, ...], ...]
    marked: frozenset[int] = frozenset()
    """Rows to highlight."""
    most: int | None = None
    """Rows that a terminal shows; None: all."""

    def shown(self, form: Form) -> tuple[tuple[Column, ...], tuple[tuple[str | Bar, ...], ...]]:
        """Return columns and rows of a format."""
        kept = [
            at
            for at, column in enumerate(self.columns)
            if form in column.on and (at == 0 or any(row[at] not in ("", Bar(None)) for row in self.rows))
        ]
        rows = self.rows[: self.most] if form in TERMINAL else self.rows
        return tuple(self.columns[at] for at in kept), tuple(tuple(row[at] for at in kept) for row in rows)


@dataclass(frozen=True)
class Step:
    """Something to do, and why."""

    title: str
    text: str
    code: str = ""
    """Code to paste: never prose."""
    place: str = ""
    """File and line of the user's code that it is about."""
    is_diff: bool = False
    proof: str = ""
    """The command that tries it."""


@dataclass(frozen=True)
class Steps(_Block):
    """Steps to take, the most important first."""

    steps: tuple[Step, ...]
    label: str = "Fix"
    """Label of each step on a terminal, with its number; empty if there is only one."""


@dataclass(frozen=True)
class Figure(_Block):
    """The plot of all blocks, which the page has a macro for."""

    drawing: Any
    """A `BlockPlot`."""
    on: tuple[Form, ...] = field(default=("html",), kw_only=True)


@dataclass(frozen=True)
class Link:
    """A file that belongs to a result, at its address."""

    text: str
    url: str


@dataclass(frozen=True)
class Links(_Block):
    """Links in one line; pages are to lead nowhere."""

    links: tuple[Link, ...]
    on: tuple[Form, ...] = field(default=("markdown",), kw_only=True)


Block = Paragraph | Items | Table | Steps | Figure | Links


@dataclass(frozen=True)
class Section:
    """A part of a report with a title, which a terminal has no room for."""

    title: str
    blocks: tuple[Block, ...]
    folded: bool = True
    """Markdown and HTML show it on a click."""


@dataclass(frozen=True)
class Document:
    """A report."""

    sections: tuple[Section, ...]
    title: str = "bottleneck"

    def shown(self, form: Form) -> Iterator[tuple[Section, tuple[Block, ...]]]:
        """Yield the sections with content in a format, and that content."""
        for section in self.sections:
            blocks = tuple(block for block in section.blocks if form in block.on and not _is_empty(block))
            if blocks:
                yield section, blocks


def _is_empty(block: Block) -> bool:
    if isinstance(block, Paragraph):
        return not block.text.strip()
    held = {Items: "texts", Table: "rows", Steps: "steps", Links: "links"}.get(type(block))
    return held is not None and not getattr(block, held)
