"""Evidence as a file has it, for tests that look at its keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from bottleneck.results.evidence import Evidence
from bottleneck.results.json import plain


def said(value: Any) -> Any:
    """Return a part of the evidence as JSON; of all of it only known keys."""
    found = plain(value, "evidence")
    return {key: part for key, part in found.items() if part is not None} if isinstance(value, Evidence) else found


def in_json(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which then returns what a file would have."""
    return wraps(function)(lambda *args, **kwargs: said(function(*args, **kwargs)))
