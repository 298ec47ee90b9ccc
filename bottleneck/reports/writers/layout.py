"""Lines of styled text that fit a terminal: tables in columns and paragraphs, measured in character cells.

A line is a tuple of spans. Joined, their texts are the plain report; with their styles, the coloured one, so
that both have one layout.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

Style = Literal["", "bold", "dim", "green", "yellow", "red", "cyan"]


@dataclass(frozen=True)
class Span:
    """A piece of text in one style."""

    text: str
    style: Style = ""


Line = tuple[Span, ...]


@dataclass(frozen=True)
class StyledReport:
    """A report that finds its lines when it knows how wide they may be; rich can print it in its styles."""

    lines: Callable[[int], Iterable[Line]]
    """Takes the character cells that no line exceeds."""

    def plain(self, width: int) -> str:
        """The report as plain text; it ends with one newline."""
        return "\n".join(plain(line) for line in self.lines(max(1, width))) + "\n"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich."""
        from rich.text import Text  # the plain report needs no rich

        for line in self.lines(options.max_width):
            yield Text.assemble(*((span.text, span.style) for span in line), no_wrap=True, overflow="crop")


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    align_right: bool = False
    shrinks_to: int | None = None
    """The width that it may be cut to when the table is too wide; None: it is never cut."""


def cells(text: str) -> int:
    """How many character cells a terminal takes for `text`."""
    return len(text) if text.isascii() else sum(_cell(character) for character in text)


def fit(text: str, width: int) -> str:
    """`text`, cut with an ellipsis where it takes more than `width` cells."""
    if cells(text) <= width:
        return text
    kept, room = [], width - 1
    for character in text:
        room -= _cell(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…" if width > 0 else ""


def paragraph(text: str, width: int, first: str = "", rest: str = "", style: Style = "") -> list[Line]:
    """`text` wrapped at words, its first line after `first` and the others after `rest`.

    `style` is that of `first`, or of the whole text where `first` is only white space.
    """
    label: Style = style if first.strip() else ""
    content: Style = "" if first.strip() else style
    wrapped = list(_wrap(text, max(1, width - cells(first)), max(1, width - cells(rest)))) or [""]
    made: list[Line] = [(Span(first, label), Span(wrapped[0], content))]
    made.extend((Span(rest), Span(line, content)) for line in wrapped[1:])
    return [fit_line(line, width) for line in made]


def table(columns: Sequence[Column], rows: Sequence[Sequence[Span]], width: int, indent: int = 2) -> list[Line]:
    """A header and rows in aligned columns, two cells apart; where they do not fit, a paragraph for each row."""
    widths = [
        max(cells(column.title), *(cells(row[index].text) for row in rows), 0) for index, column in enumerate(columns)
    ]
    room = width - indent - 2 * (len(columns) - 1)
    _shrink(widths, columns, room)
    if sum(widths) > room:
        title = [Span(" " * indent), Span(columns[0].title, "dim")]
        named = [fit_line(title, width)] if columns[0].title.strip() else []
        return [*named, *(line for row in rows for line in _stacked(columns, row, width, indent))]
    header = [Span(column.title, "dim") for column in columns]
    return [fit_line(_row(columns, widths, row, indent), width) for row in [header, *rows]]


def table_width(columns: Sequence[Column], rows: Sequence[Sequence[Span]], indent: int = 2) -> int:
    """How wide `table` makes a table that it does not have to cut."""
    return max((cells(plain(line)) for line in table(columns, rows, 10_000, indent)), default=0)


def fit_line(line: Sequence[Span], width: int) -> Line:
    """A line without white space at its end, cut where it takes more than `width` cells."""
    kept, room = [], width
    for span in _stripped(line):
        if room <= 0:
            break
        text = fit(span.text, room)
        kept.append(Span(text, span.style))
        room -= cells(text)
        if text != span.text:
            break
    return _stripped(kept)


def plain(line: Line) -> str:
    """The text of a line."""
    return "".join(span.text for span in line)


def _stripped(line: Sequence[Span]) -> Line:
    kept = list(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = Span(kept[-1].text.rstrip(), kept[-1].style)
    return tuple(kept)


def _row(columns: Sequence[Column], widths: Sequence[int], row: Sequence[Span], indent: int) -> Line:
    spans = [Span(" " * indent)]
    for index, (column, width, span) in enumerate(zip(columns, widths, row, strict=True)):
        text = fit(span.text, width)
        padding = " " * (width - cells(text))
        text = padding + text if column.align_right else text + padding
        spans.append(Span(text if index == 0 else "  " + text, span.style))
    return tuple(spans)


def _stacked(columns: Sequence[Column], row: Sequence[Span], width: int, indent: int) -> list[Line]:
    """A row of a table that is too wide: its first cell, and below it the others with their titles."""
    inner = " " * (indent + 2)
    made = [fit_line((Span(" " * indent), row[0]), width)]
    for column, span in zip(columns[1:], row[1:], strict=True):
        if span.text.strip():
            first = f"{inner}{column.title.strip()}: " if column.title.strip() else inner
            made.extend(paragraph(span.text, width, first, f"{inner}  ", style=span.style))
    return made


def _shrink(widths: list[int], columns: Sequence[Column], room: int) -> None:
    """Take from the widest column that may be cut, cell by cell, until all fit or none may be cut."""
    while sum(widths) > room:
        able = [
            (widths[index], index)
            for index, column in enumerate(columns)
            if column.shrinks_to is not None and widths[index] > column.shrinks_to
        ]
        if not able:
            return
        widths[max(able)[1]] -= 1


def _wrap(text: str, first_room: int, rest_room: int) -> Iterable[str]:
    line, room = "", first_room
    for word in text.split():
        if line and cells(line) + 1 + cells(word) <= room:
            line = f"{line} {word}"
            continue
        if line:
            yield line
            room = rest_room
        line = word
        while cells(line) > room:
            head = _head(line, room)
            yield head
            line, room = line[len(head) :], rest_room
    if line:
        yield line


def _head(text: str, room: int) -> str:
    """As many characters as fit into `room` cells, but at least one."""
    used = 0
    for index, character in enumerate(text):
        used += _cell(character)
        if used > room and index:
            return text[:index]
    return text


def _cell(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
