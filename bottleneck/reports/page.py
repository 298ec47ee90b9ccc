"""One HTML page from a template: self-contained, everything in it escaped, and no script runs but our own."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any


def render_page(template: str, values: Mapping[str, Any], script: str = "") -> str:
    """The document that a template of this package makes; it ends with one newline.

    Args:
        template: The name of the template.
        values: What it shows, not yet escaped.
        script: Code of this package's that the page needs; the policy of the page names it by its hash.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bottleneck.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,  # what is left undefined is a fault and says so
        trim_blocks=True,
        lstrip_blocks=True,
    )
    frame = {"script": Markup(script), "script_hash": Markup(_hash(script))}
    return environment.get_template(template).render({**values, **frame}).rstrip() + "\n"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
