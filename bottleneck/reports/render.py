"""The reports in every format; each format is a separate module, imported on demand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from bottleneck.errors import UsageError
from bottleneck.reports.document import Document, Form, Link
from bottleneck.reports.monitor import monitored_document, monitored_json
from bottleneck.results.comparison import Comparison
from bottleneck.results.json import to_json
from bottleneck.results.monitor import Monitored
from bottleneck.results.plan import PlanResult
from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult
from bottleneck.results.watched import WatchedResult

if TYPE_CHECKING:
    from bottleneck.reports.text import TextReport

FORMATS = ("text", "markdown", "html", "json")

Reported = Result | Comparison | TuningResult | PlanResult | WatchedResult | Monitored


def render(reported: Reported, format: str, compared: Comparison | None = None, links: Sequence[Link] = ()) -> str:
    """Return a report; it ends with one newline.

    Args:
        reported: What to report.
        format: One of `FORMATS`.
        compared: The result against what was measured before, for markdown and HTML.
        links: Files that belong to the result, for markdown.

    Raises:
        UsageError: The format is not one of them.
    """
    if format == "json":
        return monitored_json(reported) if isinstance(reported, Monitored) else to_json(reported) + "\n"
    if format not in FORMATS:
        raise UsageError(f"There is no report format {format!r}.", f"Use one of {', '.join(FORMATS)}.")
    if format == "text":
        return for_terminal(reported).plain()
    document = _document(reported, format, compared, links)
    if format == "markdown":
        from bottleneck.reports.markdown import render_markdown

        return render_markdown(document)
    from bottleneck.reports.html import render_html

    return render_html(document)


def for_terminal(reported: Reported, *, verbose: bool = False) -> TextReport:
    """Return the report for a terminal, which knows its width and whether colours are wanted.

    Args:
        reported: What to report.
        verbose: With all tables, and the intervals of all numbers.
    """
    from bottleneck.reports.text import TextReport

    form: Form = "verbose" if verbose else "text"
    return TextReport(_document(reported, form), form)


def _document(
    reported: Reported, format: str, compared: Comparison | None = None, links: Sequence[Link] = ()
) -> Document:
    from bottleneck.reports.outline import (
        comparison_document,
        plan_document,
        result_document,
        tuning_document,
        watched_document,
    )

    if isinstance(reported, Result):
        return result_document(reported, format, compared, links)
    if isinstance(reported, TuningResult):
        return tuning_document(reported, format)
    if isinstance(reported, PlanResult):
        return plan_document(reported)
    if isinstance(reported, WatchedResult):
        return watched_document(reported)
    if isinstance(reported, Monitored):
        return monitored_document(reported)
    return comparison_document(reported)


# --- files in the folder of a result -----------------------------------------------------------------------

MAX_LINKS = 10
_NOT_IN_ADDRESSES = " \"'<>()[]\\`|\n\r\t"
_NAMES = {"*.html": "Report with charts", "worker-0.svg": "Flamegraph of a worker"}


def find_links(result_path: Path, prefix: str) -> tuple[Link, ...]:
    """Return links to the HTML reports and flamegraphs that lie in the folder of a result, and one folder further down.

    Args:
        result_path: The saved result.
        prefix: Where its folder can be fetched.

    Raises:
        UsageError: The prefix is no address of the web.
    """
    if not _is_address(prefix):
        raise UsageError(f"{prefix!r} is not an address.", "Write one such as https://example.org/artifacts/42")
    folder, links = result_path.parent, []
    for pattern, text in _NAMES.items():
        for path in sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")])[:MAX_LINKS]:
            links.append(Link(text, f"{prefix.rstrip('/')}/{quote(path.relative_to(folder).as_posix())}"))
    return tuple(links)


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:  # a bracket that begins no address of version 6, among others
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and not any(c in text for c in _NOT_IN_ADDRESSES)
