"""A document as one HTML page that needs nothing else: no font, no link, and no script but that of the flamegraph."""

from __future__ import annotations

import base64
import functools
import hashlib
from typing import TYPE_CHECKING, Any

from bottleneck.reports import sanitize
from bottleneck.reports.charts.flamegraph import script
from bottleneck.reports.document import Document, Figure

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup


def render_html(document: Document) -> str:
    """The report as one self-contained page, light or dark as the reader's system is; it ends with one newline."""
    from markupsafe import Markup

    sections = [(one.title, [(type(b).__name__, b) for b in blocks]) for one, blocks in document.shown("html")]
    figures = [block for _, blocks in sections for _, block in blocks if isinstance(block, Figure)]
    code = script() if any(figure.kind == "flamegraph" for figure in figures) else ""
    digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")
    page = _environment().get_template("page.html.j2")
    return page.render(title=document.title, sections=sections, script=Markup(code), script_hash=digest).rstrip() + "\n"


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
    return environment


def _clean(value: Any) -> Any:
    return sanitize.shown(value) if type(value) is str else value


def _code(text: str) -> Markup:
    """Lines of code, which stay lines."""
    from markupsafe import escape

    return escape(sanitize.public("\n".join(sanitize.lines(text))))
