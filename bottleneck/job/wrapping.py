"""Objects around a DataLoader that work on each of its batches, such as the PrefetchLoader of timm.

Such an object is no DataLoader. It holds one, and its `__iter__` is a generator: it moves, casts or normalizes each
batch, often one batch ahead of the loop. What it does to a batch is measured as the stage `copy`.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from bottleneck.errors import PipelineError
from bottleneck.job.torch_loading import BaseIterator

_MAX_NESTED = 4
"""Maximum wrappers around each other."""
_CONTAINERS = (list, dict, set, deque)
Move = Callable[[Any, Any], Any]
"""(batch, device) -> batch."""


def iterates_a_loader(kind: type) -> bool:
    """Return True if objects of a class may be wrappers: its `__iter__` is a generator that names a loader."""
    iterate = inspect.unwrap(next((vars(cls)["__iter__"] for cls in kind.__mro__ if "__iter__" in vars(cls)), len))
    return inspect.isgeneratorfunction(iterate) and any("loader" in name for name in iterate.__code__.co_names)


def unwrap(wrapper: Any, then: Move | None = None) -> tuple[DataLoader[Any], WrappersWork] | None:
    """Return the DataLoader that an object wraps, and its work on a batch; None if it is no such wrapper.

    Args:
        wrapper: Any object.
        then: Work on a batch that follows.
    """
    work: Any = then
    for _ in range(_MAX_NESTED):
        name = _holds_at(wrapper)
        if name is None:
            return None
        work, wrapper = WrappersWork(wrapper, name, work), vars(wrapper)[name]
        if isinstance(wrapper, DataLoader):
            return wrapper, work
    return None


def _holds_at(wrapper: Any) -> str | None:
    """Return the attribute in which an object holds its only loader; None if it is no wrapper."""
    if isinstance(wrapper, DataLoader | type) or not iterates_a_loader(type(wrapper)):
        return None
    held = getattr(wrapper, "__dict__", {})
    inner = [name for name, value in held.items() if "loader" in name and _may_be_held(value)]
    return inner[0] if len(inner) == 1 else None


def _may_be_held(value: Any) -> bool:
    return isinstance(value, DataLoader) or (not isinstance(value, type) and iterates_a_loader(type(value)))


class WrappersWork:
    """The work of a wrapper on a batch of its DataLoader, as a `to_device`: each call makes one batch of that batch.

    It runs the wrapper's own `__iter__`, in a copy of the wrapper that holds the given batch instead of its loader.

    Args:
        wrapper: The wrapper.
        name: The attribute in which it holds its loader.
        then: Work that follows.
    """

    def __init__(self, wrapper: Any, name: str, then: Move | None) -> None:
        self._wrapper, self._name, self._then = wrapper, name, then
        self.__qualname__ = type(wrapper).__qualname__  # by which reports name it

    def __call__(self, batch: Any, device: Any) -> Any:
        """Return what the wrapper makes of a batch, as in an epoch of this batch alone."""
        lent = _Lent(vars(self._wrapper)[self._name], endless=False)
        lent.give(batch)
        for made in self._pass_over(lent):
            if lent.taken:
                return made if self._then is None else self._then(made, device)
            break
        raise self._not_one_to_one()

    def running(self) -> Move:
        """Return the same work as in the middle of an epoch, for one consumer.

        A wrapper that works ahead does so here: it begins a batch, and returns an earlier one that may be done. Batches
        that it asks for too early, as at its beginning, are repetitions of the last one.
        """
        lent, then = _Lent(vars(self._wrapper)[self._name], endless=True), running(self._then)
        made: Iterator[Any] | None = None

        def run(batch: Any, device: Any) -> Any:
            nonlocal made
            lent.give(batch)
            for _ in range(2):
                began = made is None
                made = made or self._pass_over(lent)
                for found in made:
                    if not began and lent.taken != 1:
                        raise self._not_one_to_one()
                    return found if then is None else then(found, device)
                made = None  # its epoch is over, by its own count
            raise self._not_one_to_one()

        return run

    def _pass_over(self, lent: _Lent) -> Iterator[Any]:
        kind = type(self._wrapper)
        copy = object.__new__(kind)
        copy.__dict__.update({name: _own(value) for name, value in vars(self._wrapper).items()})
        copy.__dict__[self._name] = lent
        return iter(copy)

    def _not_one_to_one(self) -> PipelineError:
        name = self.__qualname__
        return PipelineError(
            f"{name} does not make one batch of each batch of its DataLoader, so that its work cannot be measured.",
            f"Describe the job by that loader: Pipeline.from_loader(loader.{self._name}, to_device=move, ...).",
        )


def _own(value: Any) -> Any:
    """Return an attribute for a copy of a wrapper, which may not add to the containers of the original."""
    if isinstance(value, BaseIterator):
        return None  # it begins with another one
    return value.copy() if isinstance(value, _CONTAINERS) else value


def running(move: Move | None) -> Move | None:
    """Return a `to_device` for one consumer, to which a wrapper gives batches as in the middle of an epoch."""
    return move.running() if isinstance(move, WrappersWork) else move


class _Lent:
    """Stands in for the loader in a copy of a wrapper; gives the batches that it is given."""

    def __init__(self, loader: Any, *, endless: bool) -> None:
        self._loader, self._endless = loader, endless
        self._waiting: deque[Any] = deque()
        self._last: Any = None
        self.taken = 0
        """Batches taken since the last was given."""

    def give(self, batch: Any) -> None:
        self._waiting.append(batch)
        self.taken = 0

    def __iter__(self) -> _Lent:
        return self

    def __next__(self) -> Any:
        if not self._waiting and not self._endless:
            raise StopIteration
        self.taken += 1
        self._last = self._waiting.popleft() if self._waiting else self._last
        return self._last

    def __len__(self) -> int:
        return len(self._loader) if self._endless else 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)
