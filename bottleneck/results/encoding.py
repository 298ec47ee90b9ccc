"""Records to the text of a JSON document, fast enough for results of tens of thousands of blocks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import msgspec

from bottleneck.errors import BottleneckError
from bottleneck.results.evidence import Evidence
from bottleneck.results.values import Interval

_AS_THEY_ARE = frozenset({str, bool, int, type(None)})
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


def plain_document(record: Any, kind: type) -> dict[str, Any]:
    """A whole document: the fields of `kind`, to which the class of `record` may add its own.

    Raises:
        BottleneckError: As `plain`.
    """
    return _plain_record(record, _fields(kind), "", free=False)


def _plain_record(record: Any, held: tuple[_Field, ...], path: str, free: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, unknown, default in held:
        value = getattr(record, name)
        kind = type(value)
        if unknown is not None and value == default:
            if unknown == "null":
                found[name] = None
        elif kind in _AS_THEY_ARE or (kind is float and math.isfinite(value)):
            found[name] = value  # most are numbers and texts; the path is built only where it may be needed
        else:
            found[name] = plain(value, f"{path}.{name}".lstrip("."), free)
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


def indented(value: Any) -> str:
    """What `json.dumps(value, indent=2, ensure_ascii=False)` gives for the types of JSON, many times as fast.

    With an indentation Python's own encoder runs in Python; without one it and msgspec's layout run in C.
    """
    try:
        return msgspec.json.format(json.dumps(value, ensure_ascii=False, allow_nan=False), indent=2)
    except UnicodeEncodeError:  # a path that is not UTF-8 holds lone surrogates, which msgspec refuses
        return json.dumps(value, indent=2, ensure_ascii=False)
