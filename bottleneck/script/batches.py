"""`bottleneck.watch`: one line in the loop that declares batches which come from no DataLoader.

Torch is not imported here, and outside of a diagnosis nothing is done: the line may stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar, cast

from bottleneck.errors import UsageError

T = TypeVar("T")

open_watched: Callable[[Any], Iterator[Any]] | None = None
"""Function that returns the iterator over wrapped batches while a diagnosis looks for a loop; otherwise None."""
may_train: Callable[[], bool] | None = None
"""Function that returns True if a call of a wrapped function may be training, not evaluation; None as above."""


class _Calls:
    """The results of a function, called repeatedly with its latest arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = self.latest = function

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self.latest()


class Watched(Generic[T]):
    """An iterable of batches that is diagnosed if `bottleneck run` or `bottleneck.diagnosing` looks for a loop.

    Args:
        batches: The original iterable, which also provides all other attributes of this object.
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
        """Return the result of the wrapped function for some arguments.

        Raises:
            TypeError: The wrapped object is not a function.
        """
        if not isinstance(self._batches, _Calls):
            raise TypeError(f"{type(self._batches).__name__!r} object is not callable")
        make = partial(self._batches.function, *arguments, **named)
        if may_train is None or not may_train():
            return cast("T", make())
        self._batches.latest = make
        return next(self)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # if it has a length

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # from pickle and copy, which ask before attributes exist
            raise AttributeError(name)
        return getattr(self._batches, name)


def watch(batches: Iterable[T] | Callable[..., T]) -> Watched[T]:
    """Mark the loop over these batches as the one that `bottleneck run` or `bottleneck.diagnosing` diagnoses.

    Use it for batches that come from no DataLoader, and for loops without a PyTorch backward pass, such as an
    evaluation. Outside of a diagnosis the batches are iterated unchanged.

    Args:
        batches: An iterable of batches, such as a DataLoader, or a function that makes a batch: call it as before,
            `get_batch = bottleneck.watch(get_batch)`, or without arguments by `next`.

    Raises:
        UsageError: `batches` is neither.
    """
    if hasattr(batches, "__iter__") or hasattr(batches, "__getitem__"):
        return Watched(cast("Iterable[T]", batches))
    if callable(batches):
        calls: Any = type(getattr(batches, "__name__", "function"), (_Calls,), {})  # its name in reports
        return Watched(calls(batches))
    raise UsageError(
        f"watch needs an iterable of batches, or a function that makes one, not {type(batches).__name__}.",
        "Write for batch in bottleneck.watch(batches): ...",
    )
