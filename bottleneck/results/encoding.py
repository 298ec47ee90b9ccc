"""Records to the text of a JSON document, fast enough for results of tens of thousands of blocks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

from bottleneck.errors import BottleneckError
from bottleneck.results.evidence import Evidence
from bottleneck.results.values import Interval

_INDENT = 2
_AS_THEY_ARE = frozenset({str, bool, int, type(None)})
_CONTAINERS = (dict, list)
_Field = tuple[str, Any, Any]


def plain(value: Any, path: str, free: bool = False) -> Any:
    """`value` in the types of JSON.

    Args:
        value: A record, or what a field of one holds.
        path: Where it stands, for messages.
        free: Inside the parts whose content is not fixed, where a number that is not finite is none.

    Raises:
        BottleneckError: Elsewhere a number is not finite; a fault of ours.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is float:
        return _plain_number(value, path, free)
    if kind is Interval:
        bounds = {"estimate": float(value.estimate), "low": float(value.low), "high": float(value.high)}
        return bounds if all(map(math.isfinite, bounds.values())) else None
    held = _fields(kind)  # type: ignore[arg-type]  # mypy doubts that classes can be hashed
    if held:
        return _plain_record(value, held, path, free or kind is Evidence)
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{path}[{index}]", free) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{path}.{key}", free=True) for key, item in value.items()}
    return _plain_scalar(value, path, free)


def _plain_record(record: Any, held: tuple[_Field, ...], path: str, free: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, unknown, default in held:
        value = getattr(record, name)
        kind = type(value)
        if unknown is not None and value == default:
            if unknown == "null":
                found[name] = None
        elif kind in _AS_THEY_ARE or (kind is float and math.isfinite(value)):
            found[name] = value  # most are numbers and texts, whose path nobody asks for
        else:
            found[name] = plain(value, f"{path}.{name}", free)
    return found


@lru_cache(maxsize=128)
def _fields(kind: type) -> tuple[_Field, ...]:
    """Name, what JSON has where the default is held (see `bottleneck.results.evidence`), and that default."""
    held = fields(kind) if is_dataclass(kind) else ()
    return tuple((field.name, field.metadata.get("unknown"), field.default) for field in held)


def _plain_scalar(value: Any, path: str, free: bool) -> str | bool | int | float | None:
    if isinstance(value, str):
        return str(value)
    # numpy's numbers are none of Python's own, but know their kind.
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return _plain_number(float(value), path, free)
    return str(value)


def _plain_number(number: float, path: str, free: bool) -> float | None:
    if math.isfinite(number):
        return number
    if free:
        return None
    raise BottleneckError(
        f"The result cannot be written: {path} is {number}, which JSON has no number for.",
        "This is a fault of bottleneck; please report it.",
    )


def indented(value: Any, level: int = 0) -> str:
    """What `json.dumps(value, indent=2, ensure_ascii=False)` gives for the types of JSON, several times as fast.

    With an indentation Python's own encoder is none of C. Here what holds no further container, such as a block, is
    still encoded in C: a line break is a separator like any other.
    """
    if not isinstance(value, _CONTAINERS) or not value:
        return _encoder(0)(value)
    inside = value.values() if isinstance(value, dict) else value
    pad, end = "\n" + " " * (_INDENT * (level + 1)), "\n" + " " * (_INDENT * level)
    if not any(isinstance(item, _CONTAINERS) for item in inside):
        text = _encoder(level + 1)(value)
        return f"{text[0]}{pad}{text[1:-1]}{end}{text[-1]}"
    if isinstance(value, dict):
        parts = (f"{_encoder(0)(key)}: {indented(item, level + 1)}" for key, item in value.items())
    else:
        parts = (indented(item, level + 1) for item in value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}{pad}{f',{pad}'.join(parts)}{end}{closing}"


@lru_cache(maxsize=128)
def _encoder(level: int) -> Callable[[Any], str]:
    """An encoder whose items stand in lines of their own, `level` steps from the margin."""
    separators = (",\n" + " " * (_INDENT * level), ": ")
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=separators).encode
