"""The user's dataset and collate function, as a worker calls them: what they raise becomes a described failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from torch.utils.data import Subset

from bottleneck.loader import modes
from bottleneck.loader.worker.work import Work
from bottleneck.loader.worker_errors import PassesThrough, UserCodeError, describe_failure

T = TypeVar("T")


class GivenUp(PassesThrough):
    """Leaves a batch that will be thrown away, between two of its samples."""


class NoShareError(Exception):
    """An iterable dataset gave not a single item: this worker has no share of the data."""


class UserCode(Work):
    """Calls the user's code.

    Args:
        dataset: The dataset, with cuts in it.
        worker: The number of the worker; None in the main process.
        batched: The loader collates lists of samples.
    """

    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[Any], Any],
        worker: int | None,
        *,
        batched: bool,
        iterable: bool = False,
    ) -> None:
        self.dataset, self.batched, self.iterable = dataset, batched, iterable
        self.in_worker, self.number = worker is not None, worker or 0
        self.fetches_batches = batched and fetches_batches(dataset)
        """One call of the dataset's own `__getitems__` fetches a whole batch."""
        self.mode = modes.ALL
        """What the present batch is made in; part of what describes a failure."""
        self.indices: Any = None
        """Those of the present batch, where its samples were made for them: they describe a failure to collate it."""
        self.slow = False
        """Samples take so long that it is worth while to look, before each, whether it is still wanted."""
        self.is_stale: Callable[[], bool] = lambda: False
        """Whether the present batch will be thrown away."""
        self._collate_fn = collate_fn
        self._worker = worker
        self._stream: Iterator[Any] | None = None

    def fetch(self, request: Any) -> Any:
        """Return what a request of the loader asks for, as its own fetcher would."""
        self.indices = request
        if not self.batched:
            return self.item(request)
        if self.fetches_batches:
            return self.batch(request)
        dataset, index = self.dataset, None
        try:
            samples = []
            for index in self.while_wanted(request):
                samples.append(dataset[index])
        except BaseException as error:
            raise self.failure(error, index) from None
        return samples

    def while_wanted(self, parts: Iterable[T]) -> Iterable[T]:
        """Go through the parts of a batch, each of which takes long; raises `GivenUp` once the batch is not wanted."""
        return self._while_wanted(parts) if self.slow else parts

    def _while_wanted(self, parts: Iterable[T]) -> Iterator[T]:
        for part in parts:
            if self.is_stale():
                raise GivenUp
            yield part

    def item(self, index: Any) -> Any:
        try:
            return self.dataset[index]
        except BaseException as error:
            raise self.failure(error, index) from None

    def batch(self, indices: Any) -> Any:
        try:
            return self.dataset.__getitems__(indices)
        except BaseException as error:
            raise self.failure(error, list(indices)) from None

    def next_item(self, _: Any = None) -> Any:
        """Return the next item of a stream; start over when it ends, as the next epoch would."""
        try:
            if self._stream is not None:
                try:
                    return next(self._stream)
                except StopIteration:
                    self._stream = None
            self._stream = iter(self.dataset)
            return next(self._stream)
        except StopIteration:
            raise NoShareError from None
        except BaseException as error:
            raise self.failure(error, None) from None

    def next_items(self) -> list[Any]:
        return [self.next_item()]

    def collate(self, samples: Any) -> Any:
        try:
            return self._collate_fn(samples)
        except BaseException as error:
            raise self.failure(error, self.indices, "collate_fn") from None

    def failure(self, error: BaseException, index: Any, where: str = "dataset") -> BaseException:
        """Describe what the user's code raised; what it has not raised by itself stays what it is."""
        # Ctrl-C is for the main process; workers ignore it.
        if isinstance(error, PassesThrough) or (self._worker is None and isinstance(error, KeyboardInterrupt)):
            return error
        if getattr(index, "ndim", None) == 0:  # as samplers of tensors or arrays give them
            index = index.item()
        return UserCodeError(describe_failure(error, where, index=index, worker=self._worker, mode=self.mode))


def fetches_batches(dataset: Any) -> bool:
    """Whether a dataset fetches whole batches in its own way; a plain `Subset` only asks the one inside."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return bool(getattr(dataset, "__getitems__", None))
