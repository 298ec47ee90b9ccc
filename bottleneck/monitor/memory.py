"""Looks at the memory of a process that makes batches, once a minute: its size, and the containers that grow in it."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import psutil

from bottleneck.job.inspect import estimate_bytes, walk

LOOK_EVERY_S = 60.0
_MAX_GROWN = 5
_MAX_NAME = 120
_CONTAINERS = (dict, list, set, deque, bytearray)
_CACHED = type(lru_cache(lambda: None))


class MemoryLook(NamedTuple):
    """The memory of a process, in plain values that `marshal` accepts.

    Attributes:
        at: Seconds since 1970.
        pid, worker: The process; the number of the worker, or None in the main process.
        private_bytes: Memory that would be free if the process ended.
        resident_bytes: Memory that it uses, with what it shares.
        python_blocks: Blocks of memory that Python has allocated for objects.
        grown: Entries of the containers that have grown since the first look, those with the most new ones.
        grown_bytes: Estimated memory of the new entries of those whose entries can be seen.
    """

    at: float
    pid: int
    worker: int | None
    private_bytes: int
    resident_bytes: int
    python_blocks: int
    grown: dict[str, int]
    grown_bytes: dict[str, int]


class MemoryWatch:
    """Looks at the memory of this process at intervals.

    The kernel walks the page tables for each look, and the dataset is walked through: milliseconds in a minute.

    Args:
        worker: The number of this worker; None in the main process.
        clock: Monotonic time in seconds.
        now: Seconds since 1970.
    """

    def __init__(
        self,
        worker: int | None,
        clock: Callable[[], float] = time.perf_counter,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._worker, self._clock, self._now = worker, clock, now
        self._due_s = clock()
        self._first: list[tuple[weakref.ref[Any], dict[str, int]]] = []
        """Entries of containers when they were first seen, for each dataset."""

    def look(self, dataset: Any) -> MemoryLook | None:
        """Look at this process, and at the containers that a dataset leads to; None if no look is due, or none is
        possible.
        """
        now_s = self._clock()
        if now_s < self._due_s:
            return None
        self._due_s = now_s + LOOK_EVERY_S
        try:
            used = psutil.Process().memory_full_info()
            private_bytes, resident_bytes = used.uss, used.rss
        except (psutil.Error, OSError, AttributeError):  # the system may not tell
            return None
        grown = self._grown(dataset)
        return MemoryLook(
            at=self._now(),
            pid=os.getpid(),
            worker=self._worker,
            private_bytes=private_bytes,
            resident_bytes=resident_bytes,
            python_blocks=sys.getallocatedblocks(),
            grown={name: length for name, (length, _) in grown.items()},
            grown_bytes={name: nbytes for name, (_, nbytes) in grown.items() if nbytes is not None},
        )

    def _grown(self, dataset: Any) -> dict[str, tuple[int, int | None]]:
        """Return the containers that have grown, with their entries and the estimated memory of the new ones."""
        try:
            held = {name[:_MAX_NAME]: container for name, container in _containers(dataset)}
            lengths = {name: _length(container) for name, container in held.items()}
            first = self._first_of(dataset)
            new = {name: length - first.setdefault(name, length) for name, length in lengths.items()}
            most = sorted((name for name in new if new[name] > 0), key=lambda name: -new[name])[:_MAX_GROWN]
            return {name: (lengths[name], _bytes(held[name], new[name] / lengths[name])) for name in most}
        except Exception:  # noqa: BLE001 - containers may change in another thread, and user types refuse inspection
            return {}

    def _first_of(self, dataset: Any) -> dict[str, int]:
        """Return the entries of a dataset's containers when they were first seen."""
        self._first = [(known, first) for known, first in self._first if known() is not None]
        for known, first in self._first:
            if known() is dataset:
                return first
        self._first.append((weakref.ref(dataset), {}))
        return self._first[-1][1]


def _containers(dataset: Any) -> Iterator[tuple[str, Any]]:
    """Yield the containers in a dataset, and those in its module with the caches of functions."""
    if dataset is None:
        return
    yield from ((held.name, held.value) for held in walk(dataset, "dataset") if isinstance(held.value, _CONTAINERS))
    module = sys.modules.get(type(dataset).__module__)
    for name, value in () if module is None else list(vars(module).items()):
        if name.startswith("__"):
            continue
        # Not isinstance(), nor any attribute: a lazy proxy would load its object.
        if issubclass(type(value), _CONTAINERS):
            yield f"{type(dataset).__module__}.{name}", value
        elif type(value) is _CACHED:
            yield f"the cache of {type(dataset).__module__}.{name}", value


def _length(container: Any) -> int:
    return len(container) if isinstance(container, _CONTAINERS) else int(container.cache_info().currsize)


def _bytes(container: Any, share: float) -> int | None:
    """Return the estimated memory of a share of a container; None of a cache, whose entries cannot be seen."""
    return round(share * estimate_bytes(container)) if isinstance(container, _CONTAINERS) else None
