"""The user's dataset and collate function as a worker calls them, and what they raise, described.

DataLoader re-raises a worker's exception as `type(message)` with its own text around it. Our exception therefore
takes one string, and the facts travel inside that string.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, TypeVar

from torch.utils.data import Subset

from bottleneck.job.users_code import quote, text_of, users_traceback
from bottleneck.loader import modes
from bottleneck.loader.recording.copies import checksum
from bottleneck.loader.streams import FIRST, counted

_OPEN, _CLOSE = "<bottleneck-failure>", "</bottleneck-failure>"


class PassesThrough(BaseException):
    """Raised by this package and caught by it, with the user's code in between, which may not hold it up."""


class UserCodeError(Exception):
    """The user's dataset or collate function raised; the text holds a `Failure`."""


@dataclass(frozen=True)
class Failure:
    """An exception of the user's code, and its place.

    Attributes:
        error: Type and message of the exception.
        where: `dataset`, `collate_fn` or `worker_init_fn`.
        index: The index that was asked for, as text; None if there is none.
        worker: The number of the worker; None in the main process.
        mode: The stages that worked for real.
        traceback: The user's part of the traceback.
    """

    error: str
    where: str
    index: str | None
    worker: int | None
    mode: int
    traceback: str


def describe_failure(error: BaseException, where: str, *, index: Any, worker: int | None, mode: int) -> str:
    """Put a failure into one string, for `UserCodeError`."""
    text = traceback.format_exception_only(type(error), error)[-1].strip()
    shown = None if index is None else quote(index)[:200]
    failure = Failure(text, where, shown, worker, mode, users_traceback(error))
    return f"{_OPEN}{json.dumps(asdict(failure))}{_CLOSE}"


def find_failure(error: BaseException) -> Failure | None:
    """Return the failure inside an exception that came out of a loader, or None."""
    text = text_of(error)
    start, end = text.find(_OPEN), text.find(_CLOSE)
    if start < 0 or end < 0:
        return None
    return Failure(**json.loads(text[start + len(_OPEN) : end]))


class Placeholder:
    """Stands for samples that are not made.

    Attributes:
        size: Samples in the batch that is served instead of them; 0 if there is none.
    """

    def __init__(self, size: int) -> None:
        self.size = size


SKIPPED = Placeholder(0)


def is_placeholder(samples: Any) -> bool:
    """Return True if samples were not made; a list that spans a switch of the mode counts as not made."""
    if isinstance(samples, list) and samples:
        return isinstance(samples[0], Placeholder) or isinstance(samples[-1], Placeholder)
    return isinstance(samples, Placeholder)


class Work:
    """A worker's task for the batches of a mode; this base does nothing.

    The samples of a map-style dataset are fetched by request, those of a stream one after the other. What the user's
    code raises becomes a `UserCodeError`.
    """

    def fetch(self, _: Any) -> Any:
        return SKIPPED

    def next_items(self) -> list[Any]:
        """Return the next items of a stream, one or more; `NoShareError` if this worker has no share of it."""
        return [SKIPPED]

    def collate(self, _: Any) -> Any:
        return None

    def drop(self) -> None:
        """Forget the batch that is being made: it will be thrown away."""


T = TypeVar("T")

MIN_BATCH_S, MIN_SAMPLE_S = 0.05, 3e-4
"""Batches that take longer, of samples that take longer, are given up in the middle; the check takes 0.5 us."""


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
        self.dataset = dataset
        self.batched = batched
        self.iterable = iterable
        self.in_worker = worker is not None
        self.number = worker or 0
        self.fetches_batches = batched and fetches_batches(dataset)
        """One call of the dataset's own `__getitems__` fetches a whole batch."""
        self.mode = modes.ALL
        """The mode that the present batch is made in; part of what describes a failure."""
        self.indices: Any = None
        """Those of the present batch, where its samples were made for them: they describe a failure to collate it."""
        self.slow = False
        """Batches are worth giving up once they are stale: `is_stale` is asked before each sample."""
        self.is_stale: Callable[[], bool] = lambda: False
        """Return True if the present batch will be thrown away."""
        self._collate_fn = collate_fn
        self._worker = worker
        self._stream: Iterator[Any] | None = None
        self.first_samples: list[int] = []
        """Checksums of the first samples of this worker's stream."""
        self.made: list[int] = []
        """Samples that were made for each of them."""

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

    def note_time(self, seconds: float, samples: int) -> None:
        """Decide from the time of some samples [s] and the batch size whether batches are worth giving up."""
        each_s = seconds / max(1, samples)
        self.slow = seconds > MIN_BATCH_S and each_s > MIN_SAMPLE_S

    def while_wanted(self, parts: Iterable[T]) -> Iterable[T]:
        """Iterate over the samples of a batch; raise `GivenUp` once the batch is stale, if batches are slow."""
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
            if self._worker is not None and not self.first_samples:
                self._stream = self._noting(self._stream)
            return next(self._stream)
        except StopIteration:
            raise NoShareError from None
        except BaseException as error:
            raise self.failure(error, None) from None

    def _noting(self, stream: Iterator[Any]) -> Iterator[Any]:
        """Note the first samples of a stream, then leave the stream to itself: it is timed later."""
        for made, sample in islice(counted(stream), FIRST):
            self.made.append(made)
            self.first_samples.append(checksum([sample]))  # which is the same in every process
            yield sample
        self._stream = stream
        yield from islice(stream, 1)

    def next_items(self) -> list[Any]:
        return [self.next_item()]

    @property
    def stream_apart(self) -> dict[str, Any]:
        """The iterator of the stream that is read at present, unless the dataset is its own iterator."""
        stream = self._stream
        return {} if stream is None or stream is self.dataset else {"iterator": stream}

    def collate(self, samples: Any) -> Any:
        try:
            return self._collate_fn(samples)
        except BaseException as error:
            raise self.failure(error, self.indices, "collate_fn") from None

    def failure(self, error: BaseException, index: Any, where: str = "dataset") -> BaseException:
        """Describe an exception of the user's code; other exceptions pass unchanged."""
        # Ctrl-C is for the main process; workers ignore it.
        if isinstance(error, PassesThrough) or (self._worker is None and isinstance(error, KeyboardInterrupt)):
            return error
        if getattr(index, "ndim", None) == 0:  # as samplers of tensors or arrays give them
            index = index.item()
        return UserCodeError(describe_failure(error, where, index=index, worker=self._worker, mode=self.mode))


def fetches_batches(dataset: Any) -> bool:
    """Return True if a dataset fetches whole batches in its own way; a plain `Subset` only asks the one inside."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return bool(getattr(dataset, "__getitems__", None))
