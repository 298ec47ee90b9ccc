"""The report for a pull request: what the change did, what it found, and where the rest is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, urlsplit

from bottleneck.errors import UsageError
from bottleneck.reports.document import Section, Table, render_sections_markdown
from bottleneck.reports.writers.comparison import comparison_sections
from bottleneck.reports.writers.markdown import render_markdown
from bottleneck.results.comparison import Comparison
from bottleneck.results.records import Result

MAX_LINKS = 10
_NOT_IN_ADDRESSES = " \"'<>()[]\\`|\n\r\t"
_NAMES = {"*.html": "Report with charts", "workers.svg": "Flamegraph of the workers"}


@dataclass(frozen=True)
class Link:
    """A file that belongs to a result, at the place where it can be fetched."""

    text: str
    url: str


def render_pull_request(result: Result, compared: Comparison | None = None, links: Sequence[Link] = ()) -> str:
    """The report as GitHub markdown, at most one screen before the folds.

    Args:
        result: What was measured.
        compared: The same against what was measured before; None where there is nothing to compare with.
        links: Files that belong to the result.
    """
    parts = []
    if compared is not None:
        parts.append(render_sections_markdown([_folded(section) for section in comparison_sections(compared)]))
    if links:
        parts.append(" · ".join(f"[{link.text}]({link.url})" for link in links[:MAX_LINKS]) + "\n")
    return render_markdown(result, intro="\n".join([*parts, ""]) if parts else "")


def _folded(section: Section) -> Section:
    """A section with its table behind a click, but for the one of the verdicts."""
    return replace(section, folded=True) if isinstance(section, Table) and section.title != "Verdicts" else section


def find_links(result_path: Path, prefix: str) -> tuple[Link, ...]:
    """Return links to the HTML reports and flamegraphs that lie beside a result, and one folder further down.

    Args:
        result_path: The saved result.
        prefix: Where its folder can be fetched.

    Raises:
        UsageError: The prefix is no address of the web.
    """
    if not _is_address(prefix):
        raise UsageError(f"{prefix!r} is not an address.", "Write one such as https://example.org/artifacts/42")
    return tuple(
        Link(text, f"{prefix.rstrip('/')}/{quote(path.relative_to(result_path.parent).as_posix())}")
        for text, path in _attachments(result_path.parent)
    )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:  # a bracket that begins no address of version 6, among others
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and not any(c in text for c in _NOT_IN_ADDRESSES)


def _attachments(folder: Path) -> Iterator[tuple[str, Path]]:
    for pattern, text in _NAMES.items():
        for path in sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")])[:MAX_LINKS]:
            yield text, path
