"""How a field of the evidence is written where its value is unknown."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def left_out(default: Any = None) -> Any:
    """A field that is missing in JSON where it holds its default."""
    return field(default=default, metadata={"unknown": "left out"})


def null(part: Any) -> Any:
    """A field that holds a part of the evidence, and is null in JSON where nothing in that is known."""
    return field(default=part, metadata={"unknown": "null"})
