"""`bottleneck.watch`: batches that come from no DataLoader are made known by one line in the loop.

Nothing is imported here, and outside of a diagnosis nothing is done: the line may stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar, cast

from bottleneck.errors import UsageError

T = TypeVar("T")

open_watched: Callable[[Any], Iterator[Any]] | None = None
"""Gives the iterator of what `watch` has wrapped, while a diagnosis looks for a loop; None outside of one."""
may_train: Callable[[], bool] | None = None
"""Whether what calls a function that `watch` has wrapped may be the training, and is no evaluation; None as above."""


class _Calls:
    """What a function gives, called again and again with the arguments that it was called with last."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = self.latest = function

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self.latest()


class Watched(Generic[T]):
    """An iterable of batches that is diagnosed where `bottleneck run` or `bottleneck.diagnosing` looks for a loop.

    Args:
        batches: What is iterated. Everything else that is asked of this object is asked of it.
    """

    def __init__(self, batches: Iterable[T]) -> None:
        self._batches = batches
        self._iterator: Iterator[T] | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self._batches) if open_watched is None else open_watched(self._batches)

    def __next__(self) -> T:
        if self._iterator is None:
            self._iterator = iter(self)
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = None
            raise

    def __call__(self, *arguments: Any, **named: Any) -> T:
        """Return what the function that was wrapped makes of some arguments.

        Raises:
            TypeError: It was no function.
        """
        if not isinstance(self._batches, _Calls):
            raise TypeError(f"{type(self._batches).__name__!r} object is not callable")
        make = partial(self._batches.function, *arguments, **named)
        if may_train is None or not may_train():
            return cast("T", make())
        self._batches.latest = make
        return next(self)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # where it has a length

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of pickle and copy, which ask before there are attributes
            raise AttributeError(name)
        return getattr(self._batches, name)


def watch(batches: Iterable[T] | Callable[..., T]) -> Watched[T]:
    """Let the loop over these batches be the one that is diagnosed, by `bottleneck run` or `bottleneck.diagnosing`.

    For batches that come from no DataLoader, and for loops without a backward pass of PyTorch's, as an
    evaluation is. Outside of a diagnosis the batches are iterated as they are.

    Args:
        batches: An iterable of batches, a DataLoader among others, or a function that makes a batch: that is called as
            before, `get_batch = bottleneck.watch(get_batch)`, or without arguments by `next`.

    Raises:
        UsageError: Neither.
    """
    if hasattr(batches, "__iter__") or hasattr(batches, "__getitem__"):
        return Watched(cast("Iterable[T]", batches))
    if callable(batches):
        calls: Any = type(getattr(batches, "__name__", "function"), (_Calls,), {})  # what it is called in reports
        return Watched(calls(batches))
    raise UsageError(
        f"watch needs an iterable of batches, or a function that makes one, not {type(batches).__name__}.",
        "Write for batch in bottleneck.watch(batches): ...",
    )
