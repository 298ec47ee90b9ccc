"""About how many Python objects a dataset holds, which a forked worker copies page by page as it looks at them.

Reading an object writes its reference count, so that the page around it is no longer shared (the subject of
PyTorch's issue 13246). Arrays and tensors hold their values in one piece, and are counted as one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from bottleneck.job.contents import MAX_ENTRIES, walk

_LOOKED_AT = 32
"""Entries of a container from which the others are estimated."""
_ENOUGH = 8
"""Entries from which on repetitions tell something."""
_MAX_DEPTH = 4
_SMALL_INTS = range(-5, 257)
"""Python keeps one object for each of these."""


@dataclass(frozen=True)
class ObjectCount:
    """An estimate."""

    objects: int
    nbytes: int
    largest: str = ""
    """The attribute with the most of them, such as `self.samples`; empty where there is none."""


def count_objects(dataset: Any) -> ObjectCount:
    """Estimate the Python objects in the large containers of a dataset, in constant time."""
    found: list[tuple[float, float, str]] = []
    for held in walk(dataset, "self"):
        if _is_large(held.value):
            found.append((*_estimate(held.value, 0, set()), held.name))
    largest = max(found, default=(0.0, 0.0, ""))[2]
    return ObjectCount(round(sum(one[0] for one in found)), round(sum(one[1] for one in found)), largest)


def _is_large(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype == object and value.size > MAX_ENTRIES
    return isinstance(value, (list, tuple, dict, set, frozenset)) and len(value) > MAX_ENTRIES


def _estimate(value: Any, depth: int, seen: set[int]) -> tuple[float, float]:
    """Return number and bytes of the objects in a value, itself included, without those seen before."""
    size = float(sys.getsizeof(value))
    if isinstance(value, dict):
        keys, values = (list(islice(part, _LOOKED_AT)) for part in (dict.keys(value), dict.values(value)))
        parts = [_scaled(keys, len(value), depth, seen), _scaled(values, len(value), depth, seen)]
    elif isinstance(value, (set, frozenset)):
        parts = [_scaled(list(islice(value, _LOOKED_AT)), len(value), depth, seen)]
    elif isinstance(value, np.ndarray) and value.dtype == object:
        flat = value.reshape(-1) if value.flags.c_contiguous else value.flat
        parts = [_scaled([flat[place] for place in _places(value.size)], value.size, depth, seen)]
    elif isinstance(value, (list, tuple)):
        get: Any = list.__getitem__ if isinstance(value, list) else tuple.__getitem__  # past what a subclass does
        parts = [_scaled([get(value, place) for place in _places(len(value))], len(value), depth, seen)]
    else:
        return 1.0, size
    return 1.0 + sum(part[0] for part in parts), size + sum(part[1] for part in parts)


def _places(length: int) -> Sequence[int]:
    """Positions spread over a sequence."""
    return range(0, length, max(1, length // _LOOKED_AT))[:_LOOKED_AT]


def _scaled(some: list[Any], length: int, depth: int, seen: set[int]) -> tuple[float, float]:
    """Return number and bytes of all entries, from some of them."""
    if not some or depth >= _MAX_DEPTH:
        return 0.0, 0.0
    counted = [entry for entry in some if not _is_shared(entry)]
    own = {id(entry): entry for entry in counted if id(entry) not in seen}
    seen.update(own)
    if len(counted) >= _ENOUGH and 2 * len(own) <= len(counted):
        return float(len(own)), 0.0  # a few objects met again and again, such as the names of classes
    counts = [_estimate(entry, depth + 1, seen) for entry in own.values()]
    factor = length / len(some)
    return factor * sum(count[0] for count in counts), factor * sum(count[1] for count in counts)


def _is_shared(value: Any) -> bool:
    return value is None or isinstance(value, (bool, type)) or (type(value) is int and value in _SMALL_INTS)
