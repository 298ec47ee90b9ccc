"""Values out of free-form evidence, whose content may be missing, of another type, or from a hostile file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def value_at(value: Any, *path: str | int) -> Any:
    """Return what is found by following keys and positions; None where a step leads nowhere.

    Args:
        value: What to look into.
        path: A string is a key of a mapping, a whole number a position in a list.
    """
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        else:
            inside = isinstance(value, (list, tuple)) and -len(value) <= step < len(value)
            value = value[step] if inside else None
    return value


def number_at(value: Any, *path: str | int) -> float | None:
    """Return a number; None when it is not a finite one."""
    found = value_at(value, *path)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    try:
        return found if math.isfinite(found) else None
    except OverflowError:  # a whole number that no float holds
        return None


def text_at(value: Any, *path: str | int) -> str | None:
    """Return a text; None when it is none."""
    found = value_at(value, *path)
    return found if isinstance(found, str) else None


def flag_at(value: Any, *path: str | int) -> bool | None:
    """Return true or false; None when it is neither."""
    found = value_at(value, *path)
    return found if isinstance(found, bool) else None


def list_at(value: Any, *path: str | int) -> tuple[Any, ...]:
    """Return the items of a list; none when it is not one."""
    found = value_at(value, *path)
    return tuple(found) if isinstance(found, (list, tuple)) else ()


def rows_at(value: Any, *path: str | int) -> tuple[Mapping[str, Any], ...]:
    """Return those items of a list that are mappings."""
    return tuple(item for item in list_at(value, *path) if isinstance(item, Mapping))
