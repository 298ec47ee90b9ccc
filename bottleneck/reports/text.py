"""A document for a terminal: no line is wider than it, and a table that does not fit is stacked, row by row."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from bottleneck.reports.document import Bar, Block, Column, Document, Form, Items, Paragraph, Steps, Table
from bottleneck.reports.sanitize import lines, one_line

MIN_BAR, MAX_BAR = 6, 20
MIN_TEXT = 14
"""Cells that a text in a table is cut to; shorter, `before_collate` and `before_augment` read the same."""

_STYLES = {"undecided": "cyan", "within noise": "dim", "faster": "green", "slower": "red"} | {
    "fix this first": "red",
    "limits the job": "red",
    "also costs time": "yellow",
    "small": "dim",
    "not measured precisely enough": "cyan",
}
_STATES = {
    "INPUT-BOUND": "bold red",
    "SYNC-BOUND": "bold red",
    "COMPUTE-BOUND": "bold green",
    "UNDECIDED": "bold cyan",
    "TUNED": "bold green",
    "UNCHANGED": "bold cyan",
    "UNFINISHED": "bold cyan",
}
_DIFF = {"-": "red", "+": "green"}
_PARAGRAPHS = {"plain": "", "answer": "bold", "note": "dim", "small": "dim", "state": "bold", "heading": "bold"}
_GAP = 2


class TextReport:
    """A report that rich prints, as wide as its console and in colours."""

    def __init__(self, document: Document, form: Form = "text") -> None:
        self._document = document
        self._form = form

    def plain(self, width: int = 80) -> str:
        """Return the report without colours; it ends with one newline."""
        stream = io.StringIO()
        # Neither a notebook nor the environment changes output that is not a terminal.
        console = Console(
            file=stream, width=max(1, width), color_system=None, force_terminal=False, force_jupyter=False
        )
        console.print(self)
        return stream.getvalue()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, (_, blocks) in enumerate(self._document.shown(self._form)):
            if number:
                yield Text()
            indent = min(2, options.max_width // 8)
            has_table = any(isinstance(block, Table) for block in blocks)
            for block in blocks:
                writer = _Writer(console, options.max_width, indent, self._form)
                for shown in writer.block(block, indent if has_table else 0):
                    for line in console.render_lines(shown, options, pad=False):
                        text = Text.assemble(*((part.text, part.style or "") for part in line), no_wrap=True)
                        text.rstrip()
                        yield text


class _Writer:
    def __init__(self, console: Console, width: int, indent: int, form: Form) -> None:
        self._console = console
        self._width = width
        self._indent = indent
        self._form = form

    def block(self, block: Block, margin: int) -> Iterator[RenderableType]:
        """Yield the renderables of a block; `margin` is that of notes."""
        if isinstance(block, Paragraph):
            at = margin if block.role == "note" else 0
            yield from self._paragraph(block, at)
        elif isinstance(block, Items):
            style = "yellow" if block.warn else "dim"
            for text in block.texts:
                yield from self._wrapped(f"{block.label}: " if block.label else "", one_line(text), 0, 2, style)
        elif isinstance(block, Steps):
            yield from self._steps(block)
        elif isinstance(block, Table):
            yield from self._table(block)

    def _paragraph(self, block: Paragraph, at: int) -> Iterator[RenderableType]:
        text = one_line(block.text)
        state, _, rest = text.partition(" ")
        if block.role == "state" and state in _STATES:
            yield from self._wrapped(f"{state}  ", rest.strip(), at, at, _STATES[state])
        else:
            yield from self._wrapped("", text, at, at, _PARAGRAPHS[block.role])

    def _wrapped(self, label: str, text: str, first: int, rest: int, style: str) -> Iterator[RenderableType]:
        """Yield a paragraph, its first line and the others indented; the style is that of its label, if any."""
        whole = Text.assemble((label, style), text) if label.strip() else Text(text, style)
        rest = rest if label else first
        for number, line in enumerate(whole.wrap(self._console, max(1, self._width - max(first, rest)))):
            yield Padding(line, (0, 0, 0, rest if number else first))

    def _steps(self, block: Steps) -> Iterator[RenderableType]:
        indent = min(7, self._width // 3)
        for number, step in enumerate(block.steps, 1):
            place = f" ({one_line(step.place)})" if step.place else ""
            title = f"{one_line(step.title).rstrip('.')}{place}."
            label = f"{block.label} {number}  " if block.label else ""
            yield from self._wrapped(label, f"{title} {one_line(step.text)}".rstrip(), 0, indent, "cyan")
            for line in lines(step.code):
                style = _DIFF.get(line[:1], "") if step.is_diff else ""
                yield Padding(Text(line, style), (0, 0, 0, indent))
            if step.proof:
                yield from self._wrapped("Prove it: ", one_line(step.proof), indent, 2 * indent, "dim")

    def _table(self, table: Table) -> Iterator[RenderableType]:
        columns, rows = table.shown(self._form)
        if not rows:
            return
        shown = _columns(columns, rows)
        room = self._width - self._indent
        if _width(shown) > room:
            for column in shown:
                column.leave_out_interval()
        if _width(shown, least=True) > room:
            # There is room for intervals again.
            yield from self._stacked(_columns(columns, rows), table.marked)
        else:
            yield Padding(_grid(shown, table.marked, room), (0, 0, 0, self._indent))
        if len(rows) < len(table.rows):
            more = f"… and {len(table.rows) - len(rows)} more; the other formats list all."
            yield from self._wrapped("", more, self._indent, 0, "dim")

    def _stacked(self, columns: Sequence[_Column], marked: Collection[int]) -> Iterator[RenderableType]:
        """Yield each row as a list: its first cell, and below it the others with their titles."""
        named, *others = (column for column in columns if not column.bars)
        if named.title:
            yield from self._wrapped("", named.title, self._indent, 0, "dim")
        for row, name in enumerate(named.texts):
            yield from self._wrapped("", name, self._indent, 0, "bold" if row in marked else "")
            for column in others:
                text = column.texts[row].strip()
                if text:
                    yield from self._wrapped(f"{column.title}: ", text, 2 * self._indent, 3 * self._indent, "dim")


class _Column:
    """The texts of a column; numbers are aligned."""

    def __init__(self, column: Column, cells: Sequence[str | Bar]) -> None:
        self.kind = column.kind
        self.numeric = column.is_numeric
        self.title = one_line(column.title)
        self.bars = [cell for cell in cells if isinstance(cell, Bar)]
        self._fill([one_line(cell) for cell in cells if isinstance(cell, str)])

    def _fill(self, texts: Sequence[str]) -> None:
        aligned = _lined_up(texts) if self.numeric else list(texts)
        self.width = max(map(cell_len, [self.title, *aligned]))
        self.least_width = self.width if self.numeric else min(self.width, MIN_TEXT)
        self.texts = [_to_the_right(text, self.width) for text in aligned] if self.numeric else aligned
        # Above numbers with errors behind them, a title at the end would stand next to their digits.
        at_end = self.numeric and not any(text.endswith(")") or " ± " in text for text in texts)
        self.header = _to_the_right(self.title, self.width) if at_end else self.title

    def leave_out_interval(self) -> None:
        if self.kind == "interval":
            self._fill([text.partition(" (")[0].strip() for text in self.texts])

    def cell(self, row: int, bar_width: int, *, marked: bool) -> Text:
        if self.bars:
            return Text(self.bars[row].text(bar_width), "red" if marked else "green")
        return Text(self.texts[row], _STYLES.get(self.texts[row], "") if self.kind == "finding" else "")


def _columns(columns: Sequence[Column], rows: Sequence[Sequence[str | Bar]]) -> list[_Column]:
    return [_Column(column, [row[at] for row in rows]) for at, column in enumerate(columns)]


def _width(columns: Sequence[_Column], *, least: bool = False) -> int:
    """Return the width of columns in a line, at most or at least; bars take the rest."""
    widths = [column.least_width if least else column.width for column in columns if not column.bars]
    return sum(widths) + _GAP * (len(widths) - 1)


def _grid(columns: Sequence[_Column], marked: Collection[int], room: int) -> Grid:
    """Return a header and rows in aligned columns; texts are cut if they need more than the available width."""
    bar_width = min(MAX_BAR, room - _width(columns) - _GAP)
    kept = [column for column in columns if not column.bars or bar_width >= MIN_BAR]
    grid = Grid(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for column in kept:
        width = bar_width if column.bars else None
        grid.add_column(Text(column.header), no_wrap=column.numeric, overflow="ellipsis", width=width)
    for row in range(len(columns[0].texts)):
        first, *others = (column.cell(row, bar_width, marked=row in marked) for column in kept)
        grid.add_row(Text(first.plain, "bold" if row in marked else ""), *others)
    return grid


def _lined_up(texts: Sequence[str]) -> list[str]:
    """Return numbers with their errors aligned: the numbers end, and the errors begin, in one place."""
    parts = [re.split(r"(?= ± | \()", text, maxsplit=1) for text in texts]
    heads, tails = [part[0] for part in parts], ["".join(part[1:]) for part in parts]
    left, right = (max(map(cell_len, side), default=0) for side in (heads, tails))
    return [
        _to_the_right(head, left) + tail + " " * (right - cell_len(tail))
        for head, tail in zip(heads, tails, strict=True)
    ]


def _to_the_right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text
