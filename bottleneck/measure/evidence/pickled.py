"""Objects that are pickled with the tensors of a batch: their cost, and the train step's use of them."""

from __future__ import annotations

import copyreg
import gc
import io
import pickle
import time
from abc import ABCMeta
from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from statistics import median
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from bottleneck.job import containers
from bottleneck.job.replaced import replace_function
from bottleneck.loader import trees
from bottleneck.measure.evidence.packable import by_place
from bottleneck.results.evidence import PickledSeen

_MAX_BATCHES = 3
_MAX_S = 0.5
_MAX_BYTES = 1 << 26
"""Bytes of the objects of a place above which they are not pickled: a copy of them takes memory."""
_MAX_PLACES = 10
_MAX_COUNTED = 200_000
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""Types of what an object leads to, and what is not pickled with it."""


def objects_of(batch: Any) -> dict[str, list[Any]]:
    """Return the parts of a batch that hold anything but tensors, by their places.

    A place ends at the first name on the way to it: a key of a mapping, or an attribute.
    """
    found = ((path, part) for path, part in _parts(batch, "") if any(map(_is_object, trees.leaves(part))))
    return {path.removesuffix("[*]"): parts for path, parts in by_place(found).items()}


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    steps = None if trees.is_primitive(value) or isinstance(value, torch.Tensor) else containers.steps(value)
    if steps is None:
        yield path, value
        return
    for step, part in steps:
        if isinstance(value, (list, tuple)) and not step.startswith("."):
            yield from _parts(part, f"{path}{step}")
        else:
            yield f"{path}{step}", part


def _is_object(leaf: Any) -> bool:
    return not isinstance(leaf, torch.Tensor)


# --- their cost ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sent:
    """The objects of a place, pickled and unpickled."""

    kind: str
    objects: int
    python_objects: int
    nbytes: int
    pickle_s: float
    unpickle_s: float


def describe_pickled(batches: Sequence[Any], clock: Callable[[], float] = time.perf_counter) -> tuple[PickledSeen, ...]:
    """Pickle and unpickle the objects of a few batches, and describe those of each place, the slowest first."""
    sent: dict[str, list[_Sent]] = {}
    started_s = clock()
    for batch in batches[:_MAX_BATCHES]:
        for path, parts in objects_of(batch).items():
            with suppress(Exception):  # a type that refuses says so when its batch is sent
                if trees.nbytes(parts) <= _MAX_BYTES:
                    trip = _send(parts, clock)
                    sent.setdefault(path, []).append(trip)
        if clock() - started_s > _MAX_S:
            break
    found = [_summarise(path, trips) for path, trips in sent.items()]
    found.sort(key=lambda seen: (seen.pickle_s or 0.0) + (seen.unpickle_s or 0.0), reverse=True)
    return tuple(found[:_MAX_PLACES])


def _summarise(path: str, trips: Sequence[_Sent]) -> PickledSeen:
    return PickledSeen(
        path=path,
        type=trips[0].kind,
        objects=median(trip.objects for trip in trips),
        python_objects=median(trip.python_objects for trip in trips),
        pickled_bytes=median(trip.nbytes for trip in trips),
        pickle_s=median(trip.pickle_s for trip in trips),
        unpickle_s=median(trip.unpickle_s for trip in trips),
    )


def _send(parts: list[Any], clock: Callable[[], float]) -> _Sent:
    leaves = [leaf for leaf in trees.leaves(parts) if _is_object(leaf)]
    with _uncollected():
        started_s = clock()
        content = _pickle(parts)
        pickled_s = clock()
        arrived = pickle.loads(content)
        unpickled_s = clock()
        count = _count(arrived)
        counted_s = clock()
        del arrived
        released_s = clock()
    kind = Counter(map(type, leaves)).most_common(1)[0][0]
    unpickle_s = unpickled_s - pickled_s + released_s - counted_s
    return _Sent(_name(kind), len(leaves), count, len(content), pickled_s - started_s, unpickle_s)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Suspend collections of garbage: their time is that of all objects of the process."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _pickle(value: Any) -> bytes:
    """Pickle a value as for another process, but without its tensors, which travel in shared memory."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream)
    tensors: Any = dict.fromkeys((torch.Tensor, torch.nn.Parameter), lambda _: (int, ()))
    registered: Any = copyreg.dispatch_table
    pickler.dispatch_table = ChainMap(tensors, registered)
    pickler.dump(value)
    return stream.getvalue()


def _count(value: Any) -> int:
    """Return the number of Python objects that a value consists of, itself not included."""
    seen, ahead = {id(value)}, [value]
    while ahead and len(seen) < _MAX_COUNTED:
        for part in gc.get_referents(ahead.pop()):
            if id(part) not in seen and not isinstance(part, _SHARED):
                seen.add(id(part))
                ahead.append(part)
    return len(seen) - 1


def _name(kind: type) -> str:
    package = kind.__module__.partition(".")[0]
    return kind.__qualname__ if package in ("builtins", "__main__") else f"{package}.{kind.__qualname__}"


# --- their use ----------------------------------------------------------------------------------------------

_HEAP_TYPE = 1 << 9
"""Flag of a class that was made at run time, as every class written in Python."""


class ObjectReads:
    """Notes which objects of a few batches have an attribute read, while it is entered.

    Code that uses an object written in Python reads its attributes sooner or later. Of other objects nothing is known.
    """

    def __init__(self) -> None:
        self._places: dict[int, str] = {}
        self._kept: list[Any] = []
        self._kinds: set[type] = set()
        self._known: dict[str, bool] = {}
        self._read: set[str] = set()
        self._replaced = ExitStack()

    def add(self, batch: Any) -> None:
        """Watch the objects of one more batch."""
        for path, parts in objects_of(batch).items():
            leaves = [leaf for leaf in trees.leaves(parts) if _is_object(leaf)]
            self._known[path] = self._known.get(path, True) and all(_is_watchable(type(leaf)) for leaf in leaves)
            if self._known[path]:
                self._kinds.update(map(type, leaves))
                self._places.update((id(leaf), path) for leaf in leaves)
                self._kept.extend(leaves)  # so that their identities stay theirs

    def is_unread(self, path: str) -> bool | None:
        """Return True if no object of a place was read; None if unknown."""
        return path not in self._read if self._known.get(path) else None

    def __enter__(self) -> None:
        for kind in self._kinds:
            self._replaced.callback(replace_function(kind, "__getattribute__", self._noting))

    def __exit__(self, *_: object) -> None:
        self._replaced.close()

    def _noting(self, get: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        places, read = self._places, self._read

        def noting(self: Any, name: str) -> Any:
            value = get(self, name)
            if name != "__class__" and id(self) in places:
                read.add(places[id(self)])
            return value

        return noting


def _is_watchable(kind: type) -> bool:
    """Return True for a plain class written in Python, whose instances hold everything in attributes."""
    return type(kind) in (type, ABCMeta) and all(base.__flags__ & _HEAP_TYPE for base in kind.__mro__[:-1])
