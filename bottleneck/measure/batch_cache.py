"""Batches cached in the main process: in host memory and on the device."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from bottleneck.job import containers
from bottleneck.loader import trees

PROBING_S = 3.0
"""For trying a train step on cached batches."""


@dataclass(frozen=True)
class CachedBatch:
    """A batch and its number of samples."""

    batch: Any
    samples: int


def tensors_in(leaf: Any) -> list[torch.Tensor]:
    """Return the tensors in one leaf of a tree: itself, or those of an object that has a method `to`, as a graph."""
    return [] if trees.is_primitive(leaf) else [tensor for _, tensor in containers.tensors(leaf)]


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a tree."""
    return [tensor for leaf in trees.leaves(value) for tensor in tensors_in(leaf)]


def tensor_bytes(value: Any) -> Counter[torch.device]:
    """Return what the tensors of a tree take, by their device; one that is met twice counts once."""
    found: Counter[torch.device] = Counter()
    for tensor in {id(tensor): tensor for tensor in tensors_of(value)}.values():
        found[tensor.device] += tensor.numel() * tensor.element_size()
    return found


def keep_on_host(batch: Any) -> Any:
    """Return a batch that outlives its worker: shared memory is copied to private memory, pinned memory kept."""
    return trees.map_leaves(lambda leaf: leaf if _is_pinned(leaf) else trees.copy_leaf(leaf), batch)


def copy_batch(batch: Any) -> Any:
    """Copy a batch; what is pinned is copied to pinned memory, so that moving the copy takes as long."""
    return trees.map_leaves(_copy_as_it_lies, batch)


def _copy_as_it_lies(leaf: Any) -> Any:
    if not _is_pinned(leaf):
        return trees.copy_leaf(leaf)
    if isinstance(leaf, torch.Tensor):
        return torch.empty_like(leaf, pin_memory=True).copy_(leaf)
    copied = trees.copy_leaf(leaf)
    return copied.pin_memory() if callable(getattr(copied, "pin_memory", None)) else copied


def _is_pinned(leaf: Any) -> bool:
    """Whether what a leaf holds lies in pinned memory; an object may hold a few more tensors, for the host only."""
    return any(tensor.device.type == "cpu" and tensor.is_pinned() for tensor in tensors_in(leaf))


class BatchCache:
    """At least one cached batch, served in turn.

    The same objects are handed out again and again, as long as nothing changes them. A train step that works in
    place would make the cached batch decay; from the moment that shows, each step gets a clone.

    Args:
        batches: At least one.
        wait: Waits until a clone is made, where its reader does not.
    """

    def __init__(self, batches: list[CachedBatch], wait: Callable[[], None] = lambda: None) -> None:
        self._batches, self._wait = batches, wait
        self._next = self._exchanged = 0
        self._watch()
        self.clones = False
        """Each serving is a clone."""

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def batches(self) -> tuple[CachedBatch, ...]:
        return tuple(self._batches)

    @property
    def nbytes(self) -> int:
        return sum(trees.nbytes(cached.batch) for cached in self._batches)

    def serve(self) -> CachedBatch:
        cached = self._batches[self._next]
        self._next = (self._next + 1) % len(self._batches)
        if self.clones:
            cached = CachedBatch(copy_batch(cached.batch), cached.samples)
            self._wait()
        return cached

    def exchange(self, fresh: Iterable[CachedBatch], *, whole: bool) -> None:
        """Serve other batches from now on.

        Args:
            fresh: At least one; each is made when the ones whose place it takes are gone.
            whole: Instead of all that are here; otherwise each takes the place of one, in turn.
        """
        if whole:
            self._tensors: list[list[torch.Tensor]] = []
            self._batches = []
            self._batches.extend(fresh)
        else:
            for cached in fresh:
                self._exchanged = (self._exchanged + 1) % len(self._batches)
                self._batches[self._exchanged] = cached
        self.rewind()
        self._watch()

    def rewind(self) -> None:
        self._next = 0

    def probe(
        self, use: Callable[[Any], Any], *, limit_s: float = PROBING_S, clock: Callable[[], float] = time.perf_counter
    ) -> bool:
        """Use each batch once, put back what it changed, and clone from then on if it changed anything.

        A batch that was moved to another device within its container counts as changed.
        A slow step is tried on as many batches as there is time for; the others are watched while they are used.
        """
        started = clock()
        for number, cached in enumerate(self._batches):
            if number and clock() - started > limit_s:
                break
            pristine = copy_batch(cached.batch)
            use(cached.batch)
            if not trees.equal(pristine, cached.batch):
                self._batches[number] = CachedBatch(pristine, cached.samples)
                self.clones = True
        self._watch()
        return self.clones

    def _watch(self) -> None:
        # The tensors are looked up once: after every block, a walk through large batches would take its time.
        self._tensors = [[t for t in tensors_of(cached.batch) if not t.is_inference()] for cached in self._batches]
        self._expected = self._versions()

    def _versions(self) -> list[list[int]]:
        return [[tensor._version for tensor in tensors] for tensors in self._tensors]

    def changed_since_probe(self) -> bool:
        """Whether any batch was changed in place after all; looks at version counters, so it costs nothing."""
        return not self.clones and self._versions() != self._expected

    def clone_from_now_on(self, make: Callable[[], CachedBatch]) -> None:
        """Serve clones, and only of batches that are still what the loader gave; `make` gives one where none is."""
        changed = [now != expected for now, expected in zip(self._versions(), self._expected, strict=True)]
        kept = [cached for cached, spoilt in zip(self._batches, changed, strict=True) if not spoilt]
        self._batches = kept or [make()]
        self._next = 0
        self._watch()
        self.clones = True
