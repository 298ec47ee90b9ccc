"""A document as one HTML page that needs nothing else: no font, no address, and no script but its own."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bottleneck.reports import sanitize
from bottleneck.reports.document import Bar, Block, Document
from bottleneck.results.format import known

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

_PAGE_SCRIPT = Path(__file__).parent / "templates" / "page.js"


@dataclass(frozen=True)
class _Part:
    """A section in its place."""

    title: str
    anchor: str
    folded: bool
    opened: bool
    """It stands above the contents, where everything is open."""
    blocks: tuple[Block, ...]


def render_html(document: Document) -> str:
    """The report as one self-contained page, light or dark as the reader's system is; it ends with one newline."""
    parts = list(_parts(document))
    script = _PAGE_SCRIPT.read_text(encoding="utf-8")
    # The page's policy lets it run by its hash.
    script_hash = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    page = _environment().get_template("page.html.j2")
    contents = [part for part in parts if part.title]
    rendered = page.render(title=document.title, parts=parts, contents=contents, script=script, script_hash=script_hash)
    return rendered.strip() + "\n"


def _parts(document: Document) -> Iterator[_Part]:
    opened, taken = True, set[str]()
    for section, blocks in document.shown("html"):
        opened = opened and not (section.folded and section.title)
        anchor = base = re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-") or "part"
        while anchor in taken:
            anchor = f"{base}-{len(taken)}"
        taken.add(anchor)
        yield _Part(section.title, anchor, section.folded, opened, blocks)


@functools.cache
def _environment() -> jinja2.Environment:
    """Return what makes the pages; it keeps the templates that it has compiled."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bottleneck.reports"),
        autoescape=True,
        finalize=_clean,  # whatever a template shows, before it is escaped
        undefined=jinja2.StrictUndefined,  # what is left undefined is a fault and says so
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    environment.filters["diff"] = _diff
    environment.filters["percents"] = _percents
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment


def _clean(value: Any) -> Any:
    return sanitize.shown(value) if type(value) is str else value


def _percents(cell: str | Bar) -> float | None:
    """How long a bar is; None where that is not known."""
    fraction = cell.fraction if isinstance(cell, Bar) else None
    return round(100 * min(1.0, max(0.0, fraction)), 1) if known(fraction) else None


def _code(text: str) -> Markup:
    """Lines of code, which stay lines."""
    from markupsafe import escape

    return escape(sanitize.public("\n".join(sanitize.lines(text))))


def _diff(text: str) -> Markup:
    """Lines of a diff, in which those that go and those that come stand out."""
    from markupsafe import Markup

    tags = {"+": Markup("<ins>{}\n</ins>"), "-": Markup("<del>{}\n</del>")}
    lines = sanitize.public("\n".join(sanitize.lines(text))).split("\n")
    return Markup("").join(tags.get(line[:1], Markup("{}\n")).format(line) for line in lines)
