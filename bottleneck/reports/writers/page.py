"""One HTML page from a template: self-contained, everything in it escaped, and no script runs but our own."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2


def render_page(template: str, values: Mapping[str, Any], script: str = "") -> str:
    """The document that a template of this package makes; it ends with one newline.

    Args:
        template: The name of the template.
        values: What it shows, not yet escaped.
        script: Code of this package's that the page needs; the policy of the page names it by its hash.
    """
    from markupsafe import Markup

    frame = {"script": Markup(script), "script_hash": Markup(_hash(script))}
    return _environment().get_template(template).render({**values, **frame}).rstrip() + "\n"


@functools.cache
def _environment() -> jinja2.Environment:
    """Return what makes the pages; it keeps the templates that it has compiled."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("bottleneck.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,  # what is left undefined is a fault and says so
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
