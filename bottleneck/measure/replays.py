"""The batches that raw received, for `device` and `host` to replay: on the same batches, their mix cancels.

The first batches of an epoch do not stand for all. Where they are sorted by length, or change their size every few
batches, an upper bound measured on them can lie below the job itself. Holding on to a batch costs nothing within a
timed block; it is copied afterwards.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch

from bottleneck.measure.batches import CachedBatch, keep_on_host, tensors_of
from bottleneck.staging import trees

_MOST_BATCHES = 64
_MOST_TENSORS = 256
"""Each tensor in shared memory holds a file descriptor, of which a process often has 1,024."""
_SHARED_MEMORY_SHARE = 0.25
"""Of what is free of /dev/shm: the workers need the rest."""
_LONGER_THAN_PLANNED = 1.3
"""A block goes on until the queue is as it was."""
_SPARE_BATCHES = 2
"""Batches a visit that take the place of others where all are alike."""
_SHARED_MEMORY = "/dev/shm"


def shape_of(batch: Any) -> tuple[Hashable, ...]:
    """Return what tells batches of different sizes apart: the shapes of tensors, the types of everything else."""
    return tuple(
        (tuple(leaf.shape), leaf.dtype)
        if isinstance(leaf, torch.Tensor)
        else (type(leaf), len(leaf) if isinstance(leaf, (str, bytes)) else 0)
        for leaf in trees.leaves(batch)
    )


def _free_shared_memory() -> float:
    try:
        return float(shutil.disk_usage(_SHARED_MEMORY).free)
    except OSError:
        return math.inf


class Replays:
    """Gathers batches of raw until the caches take them.

    Args:
        room_bytes: What they may take in host memory, and on the device.
        known: Batches that were recorded; whether they differ says whether those of raw have to be replayed.
        free_shared_memory: Bytes that are free there.
    """

    def __init__(
        self,
        room_bytes: int = 0,
        known: Iterable[CachedBatch] = (),
        free_shared_memory: Callable[[], float] = _free_shared_memory,
    ) -> None:
        self._room_bytes, self._free_shared_memory = room_bytes, free_shared_memory
        self._shapes: set[Hashable] = set()
        self._largest_bytes = self._most_tensors = 1
        self._gathered: list[CachedBatch] = []
        self._spare: list[CachedBatch] = []
        self._stride, self._passed, self._most = 1, 0, 0
        for cached in known:
            self._look_at(cached.batch)

    @property
    def vary(self) -> bool:
        """Whether batches of more than one shape were seen."""
        return len(self._shapes) > 1

    def begin(self, batches: int) -> bool:
        """A block of raw begins, of so many batches at least; return whether they are to be added."""
        self._gathered, self._passed = [], 0
        self._most = self._room()
        if not self.vary or not self._most:
            return False
        self._stride = max(1, math.ceil(_LONGER_THAN_PLANNED * batches / self._most))
        return True

    def add(self, batch: Any, samples: int) -> None:
        """Keep a batch of the block, or every so-manieth where not all fit."""
        if self._passed % self._stride == 0 and len(self._gathered) < self._most:
            self._gathered.append(CachedBatch(batch, samples))
        self._passed += 1

    def add_spare(self, batch: Any, samples: int) -> None:
        """Keep a batch that was made for the job, and was in flight when it was stopped."""
        if len(self._spare) < _SPARE_BATCHES and self._room():
            self._spare.append(CachedBatch(keep_on_host(batch), samples))

    def take(self) -> list[CachedBatch]:
        """Return what was gathered since the last time, in memory of its own."""
        gathered, spare, self._gathered, self._spare = self._gathered, self._spare, [], []
        fresh = [CachedBatch(keep_on_host(cached.batch), cached.samples) for cached in gathered] or spare
        for cached in fresh:
            self._look_at(cached.batch)
        return fresh

    def _look_at(self, batch: Any) -> None:
        self._shapes.add(shape_of(batch))
        self._largest_bytes = max(self._largest_bytes, trees.nbytes(batch))
        self._most_tensors = max(self._most_tensors, len(tensors_of(batch)))

    def _room(self) -> int:
        """How many batches can be held at once."""
        room_bytes = min(self._room_bytes, _SHARED_MEMORY_SHARE * self._free_shared_memory())
        return min(_MOST_BATCHES, int(room_bytes // self._largest_bytes), max(1, _MOST_TENSORS // self._most_tensors))
