"""The reports in every format; each format is a module of its own, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bottleneck.errors import UsageError
from bottleneck.results.comparison import Comparison
from bottleneck.results.json import to_json
from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult

if TYPE_CHECKING:
    from bottleneck.reports.document import Document, Form, Link
    from bottleneck.reports.writers.text import TextReport

FORMATS = ("text", "markdown", "html", "json")

Reported = Result | Comparison | TuningResult


def render(reported: Reported, format: str, compared: Comparison | None = None, links: Sequence[Link] = ()) -> str:
    """A report; it ends with one newline.

    Args:
        reported: What to report.
        format: One of `FORMATS`.
        compared: The result against what was measured before, for markdown and HTML.
        links: Files that belong to the result, for markdown.

    Raises:
        UsageError: The format is not one of them.
    """
    if format == "json":
        return to_json(reported) + "\n"
    if format not in FORMATS:
        raise UsageError(f"There is no report format {format!r}.", f"Use one of {', '.join(FORMATS)}.")
    if format == "text":
        return for_terminal(reported).plain()
    document = _document(reported, format, compared, links)
    if format == "markdown":
        from bottleneck.reports.writers.markdown import render_markdown

        return render_markdown(document)
    from bottleneck.reports.writers.html import render_html

    return render_html(document)


def for_terminal(reported: Reported, *, verbose: bool = False) -> TextReport:
    """The report for a terminal, which knows how wide it is and whether colours are wanted.

    Args:
        reported: What to report.
        verbose: With all tables, and the intervals of all numbers.
    """
    from bottleneck.reports.writers.text import TextReport

    form: Form = "verbose" if verbose else "text"
    return TextReport(_document(reported, form), form)


def _document(
    reported: Reported, format: str, compared: Comparison | None = None, links: Sequence[Link] = ()
) -> Document:
    from bottleneck.reports.content.outline import comparison_document, result_document, tuning_document

    if isinstance(reported, Result):
        return result_document(reported, format, compared, links)
    if isinstance(reported, TuningResult):
        return tuning_document(reported, format)
    return comparison_document(reported)
