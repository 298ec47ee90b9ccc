"""A report as paragraphs and tables, told apart from the format that shows it: text, markdown or HTML.

For reports that are tables and little else. The report of a diagnosis has forms of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bottleneck.reports import sanitize
from bottleneck.reports.writers.layout import Column, Line, Span, Style, StyledReport, paragraph, table
from bottleneck.reports.writers.page import render_page

_TEMPLATE = "sections.html.j2"
MAX_ROWS = 50
"""Rows of a table in markdown, where the whole has to fit into a comment."""
_LEAST_NAME = 8
_FINDING_STYLES: dict[str, Style] = {"faster": "green", "slower": "red", "undecided": "cyan"}


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; the first of a report is its answer."""

    text: str
    warns: bool = False


@dataclass(frozen=True)
class Table:
    """A table. All texts are as they came from the user's code; each format escapes them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()
    """Positions of columns that are aligned to the right."""
    folded: bool = False
    """Markdown shows it on a click only."""


Section = Paragraph | Table


def render_sections_text(sections: Sequence[Section], width: int = 80) -> str:
    """The report as plain text of lines of at most `width` cells."""
    return styled_sections(sections).plain(width)


def styled_sections(sections: Sequence[Section]) -> StyledReport:
    """The report for whoever knows how wide it may be, and whether colours are wanted."""
    return StyledReport(lambda width: section_lines(sections, width))


def section_lines(sections: Sequence[Section], width: int) -> Iterator[Line]:
    """The lines of the report in their styles."""
    for number, section in enumerate(sections):
        if number:
            yield ()
        if isinstance(section, Paragraph):
            first = "Warning: " if section.warns else ""
            style: Style = "yellow" if section.warns else ("" if number else "bold")
            yield from paragraph(sanitize.one_line(section.text), width, first, style=style)
            continue
        last = len(section.columns) - 1
        columns = [
            Column(
                sanitize.one_line(title),
                align_right=position in section.numeric,
                shrinks_to=_LEAST_NAME if position in (0, last) and position not in section.numeric else None,
            )
            for position, title in enumerate(section.columns)
        ]
        rows = [[_styled(sanitize.one_line(cell)) for cell in row] for row in section.rows]
        yield from table(columns, rows, width)


def _styled(cell: str) -> Span:
    return Span(cell, _FINDING_STYLES.get(cell, ""))


def render_sections_markdown(sections: Sequence[Section]) -> str:
    """The report as GitHub markdown: its first paragraph in bold, tables folded where they say so."""
    made = []
    for number, section in enumerate(sections):
        if isinstance(section, Paragraph):
            text = sanitize.markdown(section.text)
            made.append(f"> [!WARNING]\n> {text}" if section.warns else text if number else f"**{text}**")
            continue
        lines = "\n".join(_markdown_table(section))
        if section.folded:
            lines = f"<details><summary>{sanitize.markdown(section.title)}</summary>\n\n{lines}\n\n</details>"
        made.append(lines)
    return "\n\n".join(made) + "\n"


def _markdown_table(section: Table) -> Iterator[str]:
    yield f"| {' | '.join(sanitize.markdown(title) for title in section.columns)} |"
    yield f"|{'|'.join('--:' if at in section.numeric else ':--' for at in range(len(section.columns)))}|"
    for row in section.rows[:MAX_ROWS]:
        cells = (sanitize.markdown_code(row[0]), *(sanitize.markdown(cell) for cell in row[1:]))
        yield f"| {' | '.join(cells)} |"
    if len(section.rows) > MAX_ROWS:
        yield f"| … and {len(section.rows) - MAX_ROWS} more {'| ' * len(section.columns)}".rstrip()


def render_sections_html(sections: Sequence[Section]) -> str:
    """The report as one HTML page that needs nothing else."""
    return render_page(_TEMPLATE, {"sections": shown_sections(sections)})


def shown_sections(sections: Sequence[Section]) -> list[dict[str, object]]:
    """The sections as the templates take them."""
    return [_shown(section) for section in sections]


def _shown(section: Section) -> dict[str, object]:
    if isinstance(section, Paragraph):
        return {"kind": "warning" if section.warns else "paragraph", "text": _public(section.text)}
    return {
        "kind": "table",
        "title": _public(section.title),
        "columns": [(_public(title), at in section.numeric) for at, title in enumerate(section.columns)],
        "rows": [[(_public(cell), at in section.numeric) for at, cell in enumerate(row)] for row in section.rows],
    }


def _public(text: str) -> str:
    return sanitize.public(sanitize.one_line(text))
