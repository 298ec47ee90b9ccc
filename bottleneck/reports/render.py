"""One function for every format; each format is a module of its own, imported when it is asked for."""

from __future__ import annotations

from typing import Literal, get_args

from bottleneck.errors import UsageError
from bottleneck.results.records import Result

Format = Literal["text", "markdown", "html", "json"]
FORMATS: tuple[str, ...] = get_args(Format)


def render(result: Result, format: str) -> str:
    """The report of a result; it ends with one newline.

    Args:
        result: What to report.
        format: One of `FORMATS`.

    Raises:
        UsageError: The format is not one of them.
    """
    if format == "text":
        from bottleneck.reports.writers.text import render_text

        return render_text(result)
    if format == "markdown":
        from bottleneck.reports.writers.markdown import render_markdown

        return render_markdown(result)
    if format == "html":
        from bottleneck.reports.writers.html import render_html

        return render_html(result)
    if format == "json":
        from bottleneck.results.codec import to_json

        return to_json(result) + "\n"
    raise UsageError(f"There is no report format {format!r}.", f"Use one of {', '.join(FORMATS)}.")
