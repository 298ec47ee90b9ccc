"""Files that lie beside a result, as links of the comment in a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

from bottleneck.errors import UsageError
from bottleneck.reports.document import Link

MAX_LINKS = 10
_NOT_IN_ADDRESSES = " \"'<>()[]\\`|\n\r\t"
_NAMES = {"*.html": "Report with charts", "worker-0.svg": "Flamegraph of a worker"}


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
