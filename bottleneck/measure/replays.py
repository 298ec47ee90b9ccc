"""The batches of raw that the caches replay.

`device` and `host` replay the batches that `raw` received, so that the mix of batches cancels. The first batches of an
epoch are not representative: if they are sorted by length, or change their size every few batches, an upper bound
measured on them can be below the job itself. A batch is held within a timed block and copied afterwards, unless shared
memory is too small for that. Releasing a batch takes time as well, some 13 ms per 100 MB, which the job pays: batches
held in one block are released in the next one.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from bottleneck.job.world import ranks_of_host
from bottleneck.loader import trees
from bottleneck.measure.caches import CachedBatch, held_bytes, keep_on_host, tensors_in, tensors_of
from bottleneck.measure.machine.limits import shm_usage

_MAX_BATCHES = 64
_MAX_TENSORS = 128
"""Limit for tensors held: each one in shared memory has a file descriptor, and a process often has 1,024."""
_SHARED_MEMORY_SHARE = 0.125
"""Share of the free /dev/shm for the batches of a block, besides those of the last one; the workers need the rest."""
_LONGER_THAN_PLANNED = 1.3
"""Factor by which blocks exceed their minimum, until the queue is back at its level."""
_SAMPLED_BATCHES = 2
"""Batches of a block that are kept while all have had one shape."""
_MIN_BATCHES = 8
"""Batches of a block that are replayed if they differ, even if the block is planned to be shorter."""
_LAST = 16
"""Latest batches that decide if another shape is rare."""
_RARE_SHARE = 0.1
"""Share of their bytes up to which it is rare: blocks before the one of `raw` that first met it had fewer still."""
_MAX_TAKE_S = 0.5
"""Seconds for copying the batches of a block: with tens of thousands of Python objects, enough for two of them."""


def shape_of(batch: Any) -> tuple[Hashable, ...]:
    """Return a key for the size of a batch: the shapes of tensors, the types of everything else."""
    return tuple(
        tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors_in(leaf))
        or (type(leaf), len(leaf) if isinstance(leaf, (str, bytes)) else 0)
        for leaf in trees.leaves(batch)
    )


def _free_shared_memory() -> float:
    shm = shm_usage()
    return math.inf if shm is None else float(shm.free) / ranks_of_host()


class Replays:
    """Gathers batches of `raw` until the caches take them.

    Args:
        room_bytes: Limit for them in host memory, and on the device.
        known: Recorded batches; if they differ, those of `raw` have to be replayed.
        in_shared_memory: True if the loader's batches are in shared memory.
        free_shared_memory: Returns the free bytes of shared memory.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        room_bytes: int = 0,
        known: Iterable[CachedBatch] = (),
        *,
        in_shared_memory: bool = True,
        free_shared_memory: Callable[[], float] = _free_shared_memory,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._copy_s = 0.0
        self._room_bytes = room_bytes
        self._free_shared_memory = free_shared_memory
        self._in_shared_memory = in_shared_memory
        self._shapes: set[Hashable] = set()
        self._last: deque[tuple[Hashable, int]] = deque(maxlen=_LAST)
        """Shapes and bytes of the latest batches."""
        self._largest_bytes = self._most_tensors = 1
        self._gathered: list[CachedBatch] = []
        self._held: list[CachedBatch] = []
        """Batches of the last block, which were copied."""
        self._stride = 1
        self._passed = 0
        self._most = 0
        self._copies = False
        for cached in known:
            # A walk through it takes about half the time of copying it as well.
            begun = clock()
            self._look_at(cached.batch)
            self._copy_s = max(self._copy_s, 2 * (clock() - begun))

    @property
    def vary(self) -> bool:
        """True if batches of more than one shape have come."""
        return len(self._shapes) > 1

    @property
    def vary_rarely(self) -> bool:
        """True if so few batches differ in shape that measurements without them hold."""
        bytes_of: Counter[Hashable] = Counter()
        for shape, taken in self._last:
            bytes_of[shape] += taken
        return max(bytes_of.values(), default=0) >= (1 - _RARE_SHARE) * bytes_of.total()

    def begin(self, batches: int) -> bool:
        """Begin a block of `raw` with at least this number of batches; return True if they are to be added.

        While all have had one shape, a few are kept, and replace as many.
        """
        longest = math.ceil(_LONGER_THAN_PLANNED * batches)
        wanted = min(_MAX_BATCHES, max(_MIN_BATCHES, longest)) if self.vary else _SAMPLED_BATCHES
        in_time = max(_SAMPLED_BATCHES, int(_MAX_TAKE_S / self._copy_s)) if self._copy_s else wanted
        self._most = min(self._room_bytes // self._largest_bytes, wanted, in_time)
        self._passed = 0
        shared_bytes = _SHARED_MEMORY_SHARE * self._free_shared_memory() if self._in_shared_memory else math.inf
        held = min(shared_bytes / self._largest_bytes, max(1, _MAX_TENSORS // self._most_tensors))
        self._copies = int(held) < self._most
        self._stride = max(1, math.ceil(longest / max(1, self._most)))
        return self._most > 0

    def add(self, batch: Any, samples: int, lend: Callable[[Any], Any] = trees.as_it_is) -> None:
        """Keep a batch of the block, or every nth if not all fit; `lend` returns a batch that stays unchanged."""
        if self._passed % self._stride == 0 and len(self._gathered) < self._most:
            lent = lend(batch)
            kept = keep_on_host(lent) if self._copies else lent
            self._gathered.append(CachedBatch(kept, samples))
            if self._held:
                self._held.pop()
        self._passed += 1

    def take(self) -> list[CachedBatch]:
        """Return the batches gathered since the last call, in private memory."""
        gathered = self._gathered
        self._gathered = []
        begun = self._clock()
        fresh = gathered if self._copies else [CachedBatch(keep_on_host(c.batch), c.samples) for c in gathered]
        if gathered:
            self._held = [] if self._copies else gathered
        for cached in fresh:
            self._look_at(cached.batch)
        if fresh:
            self._copy_s = (self._clock() - begun) / len(fresh)
        return fresh

    def _look_at(self, batch: Any) -> None:
        shape, taken = shape_of(batch), held_bytes(batch)
        self._shapes.add(shape)
        self._last.append((shape, taken))
        self._largest_bytes = max(self._largest_bytes, taken)
        self._most_tensors = max(self._most_tensors, len(tensors_of(batch)))
