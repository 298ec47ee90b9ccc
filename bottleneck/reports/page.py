"""One HTML page from a template: self-contained, everything in it escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """The document that a template of this package makes; it ends with one newline.

    Args:
        template: The name of the template.
        values: What it shows, not yet escaped.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bottleneck.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,  # what is left undefined is a fault and says so
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(values).rstrip() + "\n"
