"""The name and version of this program, as results record them."""

from __future__ import annotations

from importlib import metadata

from bottleneck.results.records import Tool

_DISTRIBUTION = "torch-bottleneck"


def this_tool() -> Tool:
    """The name and version of this program; it may run from a checkout that is not installed."""
    try:
        version = metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        version = "unknown"
    return Tool(_DISTRIBUTION, version)
