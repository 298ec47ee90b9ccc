"""A fixed set of batches that are asked for again and again, so that what they read is known."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

_MOST_REPEATED = 0.5
"""A batch of which more has occurred before is not taken: the order has begun anew."""
_MOST_REFUSED = 2
"""Batches that may be refused for each one wanted; then the dataset has no more."""


class RequestPool:
    """Hands out the same requests, each with its number of samples, in turn."""

    def __init__(self, requests: list[tuple[Any, int]]) -> None:
        self._requests = requests
        self.position = 0
        """Requests handed out since the last restart."""

    def __len__(self) -> int:
        return len(self._requests)

    def __next__(self) -> tuple[Any, int]:
        request = self._requests[self.position % len(self._requests)]
        self.position += 1
        return request

    def trim(self, length: int) -> None:
        del self._requests[max(1, length) :]

    def restart(self, at: int = 0) -> None:
        self.position = at


def take_distinct(requests: Iterator[tuple[Any, int]], wanted: int) -> list[tuple[Any, int]]:
    """Return requests whose samples are new, as many as wanted or as the dataset has."""
    seen: set[Hashable] = set()
    taken: list[tuple[Any, int]] = []
    for request, size in itertools.islice(requests, (1 + _MOST_REFUSED) * wanted):
        keys = [_key(index) for index in _indices(request)]
        if sum(key in seen for key in keys) > _MOST_REPEATED * len(keys):
            continue
        seen.update(keys)
        taken.append((request, size))
        if len(taken) >= wanted:
            break
    return taken


def _indices(request: Any) -> Iterable[Any]:
    return request if isinstance(request, list) else [request]


def _key(index: Any) -> Hashable:
    if getattr(index, "ndim", None) == 0:  # as samplers of tensors or arrays give them
        index = index.item()
    return index if isinstance(index, (int, str, tuple, bytes)) else repr(index)
