"""How a field of the evidence is written where its value is unknown, and bounds on what a file may hold."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any

from msgspec import Meta

MOST_ROWS = 5_000
"""Rows of a list whose length goes with the job; what is written is shorter."""

Positions = Annotated[str, Meta(pattern=r"^[0-9]{1,4}( [0-9]{1,4}){0,149}\Z")]
"""Positions in a list of at most `MOST_ROWS`, as text: a list of numbers would take a line for each in a file."""


def left_out(default: Any = None) -> Any:
    """A field that is missing in JSON where it holds its default."""
    return field(default=default, metadata={"unknown": "left out"})


def null(part: Any) -> Any:
    """A field that holds a part of the evidence, and is null in JSON where nothing in that is known."""
    return field(default=part, metadata={"unknown": "null"})
