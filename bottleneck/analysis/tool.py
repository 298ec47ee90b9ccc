"""The name and version of this program, as results record them."""

from __future__ import annotations

from bottleneck._pydata import VERSION
from bottleneck.results.records import Tool


def this_tool() -> Tool:
    """Return the name and version of this program."""
    return Tool("torch-bottleneck", VERSION)
