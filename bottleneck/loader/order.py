"""The order in which the loader asks for samples: the user's own, without end and without partial batches."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from bottleneck.job.loader_args import length_of
from bottleneck.job.loader_classes import is_pytorchs, is_users_sampler
from bottleneck.loader import modes
from bottleneck.loader.control import Blank, Control, Request, Single
from bottleneck.loader.observing.lines import LineSampler, line_of
from bottleneck.loader.observing.meter import Spent
from bottleneck.loader.observing.observation import Line

_MAX_BATCHES = 512
"""About as many as raw is measured on in a minute at a step of 20 ms."""
_MAX_INDICES = 1 << 19
_MAX_SECONDS = 0.2
_GOLDEN = (math.sqrt(5) - 1) / 2

_Asked = tuple[Any, int]
"""A request to the workers, and the number of its samples."""


class LookAhead:
    """Hands out what lies ahead: from all over it while asked so, and else in order, each once.

    Args:
        requests: Gives the next request in the user's order.
        batches: How many there are at most, such as those of an epoch.
    """

    def __init__(self, requests: Callable[[], _Asked], batches: int, clock: Callable[[], float]) -> None:
        self._left: dict[int, _Asked] = {}
        self._raised: Exception | None = None
        until_s, indices = clock() + _MAX_SECONDS, 0
        while len(self._left) < min(batches, _MAX_BATCHES) and indices < _MAX_INDICES and clock() < until_s:
            try:
                request = requests()
            except Exception as error:  # noqa: BLE001 - the sampler's own; it counts when its turn comes
                self._raised = error
                break
            self._left[len(self._left)] = request
            indices += request[1]
        length = len(self._left)
        # Any number of multiples of the golden ratio is spread over the whole: an additive recurrence, as in
        # L. Kuipers and H. Niederreiter, 'Uniform Distribution of Sequences', 1974.
        spread = (int((number + 0.5) * _GOLDEN % 1 * length) for number in range(4 * length))
        self._positions = itertools.chain(spread, range(length))

    def choose(self) -> _Asked | None:
        """Return one far from those chosen before; None if none is left."""
        position = next((position for position in self._positions if position in self._left), None)
        return None if position is None else self._left.pop(position)

    def take(self) -> _Asked | None:
        """Return the first one that is left; None if there is none.

        Raises:
            Exception: What the sampler raised at that place.
        """
        if self._left:
            return self._left.pop(next(iter(self._left)))
        if self._raised is not None:
            raise self._raised
        return None


_POSITIONS_AT_ONCE, _ROUNDS = 4096, 4


def lazy_permutation(length: int, seed: int) -> Iterator[int]:
    """Yield each of `range(length)` once, in a pseudo-random order, with constant time and memory.

    `torch.randperm` of 10^8 indices takes seconds and gigabytes, which would make the diagnosis depend on the dataset's
    length. Multiplying by an odd number and xor with a right shift, the steps of integer hashes, each permute the
    numbers below a power of two; those that are out of range are left out.

    Many positions are computed at once: one by one they would take microseconds each, in the process that trains,
    where the diagnosis would find them as loading.
    """
    bits = max(1, (length - 1).bit_length())
    mask, shift = np.uint64((1 << bits) - 1), np.uint64(bits // 2 + 1)
    generator = random.Random(seed)
    steps = [[np.uint64(generator.getrandbits(64)) for _ in range(2)] for _ in range(_ROUNDS)]
    for start in range(0, 1 << bits if length else 0, _POSITIONS_AT_ONCE):
        values = np.arange(start, min(1 << bits, start + _POSITIONS_AT_ONCE), dtype=np.uint64)
        for factor, summand in steps:
            values = (values * (factor | np.uint64(1)) + summand) & mask
            values ^= values >> shift
        yield from values[values < length].tolist()


def _shuffles_all(sampler: Any) -> bool:
    """Return True if the sampler draws a permutation of the whole dataset, which is done lazily here."""
    return bool(is_pytorchs(sampler, RandomSampler) and not sampler.replacement and sampler._num_samples is None)


def _indices_of_epoch(sampler: Any, epoch: int) -> Iterator[Any]:
    """Return one epoch of a sampler's indices; PyTorch's own shuffling is done lazily."""
    if _shuffles_all(sampler):
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=sampler.generator).item())
        return lazy_permutation(len(sampler.data_source), seed)
    if is_pytorchs(sampler, SequentialSampler):
        return iter(range(len(sampler.data_source)))
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    return iter(sampler)


_MAX_AHEAD = 4
"""Epochs that are begun before their turn: each may hold an index for every sample."""


class _Epochs:
    """Epochs of a sampler one after the other, until one is empty.

    Beginning one may take seconds: the next ones can be begun before their turn, outside of a timed block.

    Args:
        make_epoch: Begins the epoch of that number.
        length: Items that an epoch has at least; 0: unknown.
    """

    def __init__(self, make_epoch: Callable[[int], Iterator[Any]], length: int = 0) -> None:
        self._make_epoch = make_epoch
        self._length = length
        self.begun = 0
        self._taken = 0
        self._present: Iterator[Any] = iter(())
        self._next = deque[Iterator[Any]]()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for item in self._present:
            self._taken += 1
            return item
        self._present = self._next.popleft() if self._next else self._begin()
        self._taken = 1
        return next(self._present)

    def begin_next(self, items: int) -> None:
        """Begin the epochs that may have their turn within that many items, some at most."""
        if self._taken and self._length:
            due = min(_MAX_AHEAD, (self._taken + items - 1) // self._length)
            self._next.extend(self._begin() for _ in range(due - len(self._next)))

    def _begin(self) -> Iterator[Any]:
        epoch = self._make_epoch(self.begun)
        self.begun += 1
        return itertools.chain(list(itertools.islice(epoch, 1)), epoch)


def _chooser(loader: DataLoader[Any]) -> Any:
    """The sampler whose indices the workers are sent."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def _index_sampler(loader: DataLoader[Any]) -> Any:
    """The sampler that chooses single indices, inside PyTorch's own one of batches."""
    sampler = _chooser(loader)
    return sampler.sampler if is_pytorchs(sampler, BatchSampler) else sampler


def _batches_of_epoch(chooser: Any) -> int:
    """Return how many whole batches come at least before one comes again; 0 if the sampler does not say."""
    return (length_of(chooser) or 1) - 1


def _requests(loader: DataLoader[Any]) -> _Epochs:
    """Return what the loader's workers are asked for, in the user's own order, without end.

    PyTorch's partial batch at an epoch's end is left out, unless the dataset is shorter than a batch: there it is the
    user's batch.
    """
    sampler = _chooser(loader)
    length = _batches_of_epoch(sampler)
    # It may be the sampler of a loader that does not batch: then an item is asked for by a list of indices.
    if not is_pytorchs(sampler, BatchSampler):
        return _Epochs(lambda epoch: _indices_of_epoch(sampler, epoch), length)

    def full_batches(epoch: int) -> Iterator[list[Any]]:
        indices = _indices_of_epoch(sampler.sampler, epoch)
        first = True
        while batch := list(itertools.islice(indices, sampler.batch_size)):
            if len(batch) < sampler.batch_size and not first:
                return
            yield batch
            first = False

    return _Epochs(full_batches, length)


_MAX_REPEATED = 0.5
"""A batch is not taken if a larger share of its samples has occurred before: the order has begun again."""
_MAX_REFUSED = 2
"""Batches that may be refused for each one wanted; then the dataset has no more."""


def _take_distinct(requests: Iterator[_Asked], wanted: int) -> list[_Asked]:
    """Return requests whose samples are new, as many as wanted or as the dataset has."""
    seen: set[Hashable] = set()
    taken: list[_Asked] = []
    for request, size in itertools.islice(requests, (1 + _MAX_REFUSED) * wanted):
        keys = [_key(index) for index in (request if isinstance(request, list) else [request])]
        if sum(key in seen for key in keys) > _MAX_REPEATED * len(keys):
            continue
        seen.update(keys)
        taken.append((request, size))
        if len(taken) >= wanted:
            break
    return taken


def _key(index: Any) -> Hashable:
    if getattr(index, "ndim", None) == 0:  # as samplers of tensors or arrays give them
        index = index.item()
    return index if isinstance(index, (int, str, tuple, bytes)) else repr(index)


class RequestOrder:
    """Replaces the loader's (batch) sampler: gives real indices if they are needed, else blanks.

    No index is asked for twice before all others were, so that `raw` never reads a file that an earlier round
    has brought into the page cache, unless the dataset is smaller than the diagnosis.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        control: Control,
        *,
        iterable: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._loader = loader
        self._clock = clock
        self._choosing_s = 0.0
        self._chosen = 0
        self.first_choice_s: float | None = None
        """Seconds that the user's sampler takes to begin and to choose its first batch, the least of all epochs that
        began; None if it was not asked."""
        self.lines: dict[Line, Spent] = {}
        """Lines that were at work in that time."""
        self._control = control
        self._iterable = iterable
        self._blank_sizes = itertools.cycle([loader.batch_size or 1])
        self._real: _Epochs | None = None
        self._ahead: LookAhead | None = None
        self.pool: list[_Asked] | None = None
        """Batches that are asked for again and again once they are there; None: the user's sampler is asked."""
        self.pool_position = 0
        """Batches of the pool that were asked for since its last restart."""
        self.stopped = False
        self.sent = 0
        """Requests handed to the loader so far."""
        self.sizes: list[int] = []
        """Samples in each of them, in order."""

    def set_blank_sizes(self, sizes: tuple[int, ...]) -> None:
        """Make blanks stand for batches of the sizes that were recorded, in turn."""
        if sizes:
            self._blank_sizes = itertools.cycle(sizes)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        # For subclasses of the loader that ask; the order itself never ends.
        return len(_chooser(self._loader))

    def __getattr__(self, name: str) -> Any:
        # The same: some ask their sampler for the one inside.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(_chooser(self._loader), name)

    def __next__(self) -> Any:
        if self.stopped:
            raise StopIteration
        request, size = self._next_request()
        self.sent += 1
        self.sizes.append(size)
        return request

    def _next_request(self) -> tuple[Any, int]:
        generation = self._control.generation
        if self._iterable:
            size = self._loader.batch_size
            return (Single(None, generation), 1) if size is None else (Request([None] * size, generation), size)
        if not modes.reads_indices(self._control.mode):
            size = next(self._blank_sizes)
            return Blank(size, generation), size
        if self.pool is None:
            request, size = self._choose()
        else:
            request, size = self.pool[self.pool_position % len(self.pool)]
            self.pool_position += 1
        if self._loader.batch_sampler is None:
            return Single(request, generation), size
        return (Request(request, generation) if type(request) is list else request), size

    def _choose(self) -> tuple[Any, int]:
        """Return the next one in the user's order; while batches are recorded, one from all over those that come."""
        if self._control.mode & modes.RECORD and not _shuffles_all(_index_sampler(self._loader)):
            if self._ahead is None:
                self._ahead = LookAhead(self._ask_sampler, _batches_of_epoch(_chooser(self._loader)), self._clock)
            chosen = self._ahead.choose()
            if chosen is not None:
                return chosen
        return self._next_real()

    def _next_real(self) -> tuple[Any, int]:
        taken = None if self._ahead is None else self._ahead.take()
        return self._ask_sampler() if taken is None else taken

    def _ask_sampler(self) -> tuple[Any, int]:
        if self._real is None:
            request = self._begin()
        else:
            started_s, begun = self._clock(), self._real.begun
            request = next(self._real)
            if not self._began_another(begun, started_s):
                self._choosing_s += self._clock() - started_s
                self._chosen += 1
        if self._loader.batch_sampler is None:
            return request, 1
        if not hasattr(request, "__len__"):  # an iterator over indices
            request = list(request)
        return request, len(request)

    def _begin(self) -> Any:
        """Begin the first epoch of the user's sampler, and see which of its lines are at work until it chooses."""
        started_s, watch = self._clock(), LineSampler(self._see_line)
        if is_users_sampler(self.users_sampler):
            watch.start()
        try:
            self._real = _requests(self._loader)
            request = next(self._real)
        finally:
            watch.stop()
        self.first_choice_s = self._clock() - started_s
        return request

    def _see_line(self, frame: FrameType, passed: Spent) -> None:
        line = line_of(frame, (RequestOrder._begin.__code__,))
        if line is not None:
            self.lines.setdefault(line, Spent()).add(passed)

    @property
    def users_sampler(self) -> Any:
        """The sampler that chooses single samples, or whole batches in its own way; None for a stream."""
        return None if self._iterable else _index_sampler(self._loader)

    def begin_epoch_within(self, batches: int) -> None:
        """Begin now what would begin within that many batches: in the job that is no part of a step."""
        if self._real is not None and self.pool is None:
            started_s, begun = self._clock(), self._real.begun
            self._real.begin_next(batches)
            self._began_another(begun, started_s)

    def _began_another(self, begun: int, started_s: float) -> bool:
        """Return True if another epoch has begun since; at the first one the workers that start take the cores, too."""
        if self._real is None or self._real.begun == begun:
            return False
        passed_s, epochs = self._clock() - started_s, self._real.begun - begun
        self.first_choice_s = min(self.first_choice_s or math.inf, passed_s / epochs)
        return True

    @property
    def epochs_begun(self) -> int:
        """Epochs of the user's sampler that have begun: from the second on, samples are asked for again."""
        return self._real.begun if self._real is not None else 0

    @property
    def permutation_length(self) -> int | None:
        """Indices that the user's own loader permutes at once for each epoch, which is not done here; None if it does
        not."""
        if self._iterable or not _shuffles_all(sampler := _index_sampler(self._loader)):
            return None
        return len(sampler.data_source)

    @property
    def choosing_s_per_batch(self) -> float | None:
        """Seconds that the user's sampler takes to choose a batch that is not the first of an epoch; None if it was not
        asked."""
        return self._choosing_s / self._chosen if self._chosen else None

    def next_requests(self, batches: int) -> list[Any]:
        """Return what the workers would be asked for next, as the user's own loader asks; it is not asked for again."""
        return [self._next_real()[0] for _ in range(batches)]

    def fill_pool(self, batches: int) -> int:
        """Ask for the next batches again and again from now on; return how many there are."""
        found = _take_distinct(iter(self._next_real, None), batches)
        self.pool = found or None
        self.pool_position = 0
        return len(found)
