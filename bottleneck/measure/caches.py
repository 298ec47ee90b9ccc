"""The batches that are cached in the main process: how many, how they are copied, and what changes them."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from bottleneck.errors import MeasurementError
from bottleneck.job import containers
from bottleneck.loader import trees
from bottleneck.results.format import cache_option, size

_LEAST_BYTES = 1 << 30
_LEAST_SHARE, _MOST_SHARE = 0.1, 0.25
"""Of the free memory: what caches may always take, though not over a GiB, and what they never exceed by default."""
_BATCHES_OF_WORKER = 3
"""A collated batch, and the samples of one with what their stages were given."""
_BATCHES_OF_MAIN = 8


@dataclass(frozen=True)
class CacheBudget:
    """What each kind of cache may take.

    Attributes:
        worker_bytes: Recorded data in each worker.
        host_bytes: Batches in host memory, in the main process, and as much in device memory, if it is free.
    """

    worker_bytes: int
    host_bytes: int

    def on_device(self, free_bytes: int | None) -> int:
        """Return what batches may take in device memory, by how much is free; None: not known."""
        return self.host_bytes if free_bytes is None else min(self.host_bytes, int(_MOST_SHARE * free_bytes))


def choose_budget(
    batch_bytes: int, workers: int, *, given: int | None, free_bytes: int, device_shares: bool
) -> CacheBudget:
    """Divide the memory for caches up.

    Args:
        batch_bytes: What one collated batch takes.
        workers: Processes that record; at least one.
        given: What the user allows for all caches together; None: what the job needs, within a quarter of what is
            free.
        free_bytes: Memory that is free.
        device_shares: What is kept on the device comes out of the same memory, or of what the user allows.

    Raises:
        MeasurementError: Not even one batch fits into the main process.
    """
    copies = 2 if device_shares else 1
    for_workers, for_main = _BATCHES_OF_WORKER * workers * batch_bytes, _BATCHES_OF_MAIN * copies * batch_bytes
    needed = for_workers + for_main
    if given is None:
        total = max(min(_LEAST_BYTES, int(_LEAST_SHARE * free_bytes)), min(needed, int(_MOST_SHARE * free_bytes)))
        most = free_bytes // 2  # one batch has to be kept, whatever else is not
    else:
        total = most = given
    if copies * batch_bytes > most:
        raise MeasurementError(
            f"One batch takes {size(copies * batch_bytes)} in the caches, which may take {size(most)}.",
            f"Allow more: {cache_option(wanted_bytes(batch_bytes, _BATCHES_OF_WORKER * batch_bytes, workers))}.",
        )
    # A quarter is for the main process; more where the workers need less, less where it needs less itself.
    shares = sorted((total // 4, total - for_workers, for_main))
    main = max(shares[1], copies * batch_bytes)
    return CacheBudget(max(0, total - main) // workers, main // copies)


def wanted_bytes(batch_bytes: int, recorded_bytes: int, workers: int) -> int:
    """Return what all caches together need for everything to be measured, also where the device shares it.

    Args:
        batch_bytes: What one collated batch takes.
        recorded_bytes: What a batch takes that a worker records whole.
    """
    for_workers = workers * recorded_bytes
    return for_workers + max(2 * _BATCHES_OF_MAIN * batch_bytes, for_workers // 3 + 1)


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


def is_on_device(batch: Any) -> bool:
    """Whether a part of a batch lies on a device already, as the loader gave it."""
    return any(tensor.device.type != "cpu" for tensor in tensors_of(batch))


def tensor_bytes(value: Any) -> Counter[torch.device]:
    """Return what the tensors of a tree take, by their device; one that is met twice counts once."""
    found: Counter[torch.device] = Counter()
    for tensor in {id(tensor): tensor for tensor in tensors_of(value)}.values():
        found[tensor.device] += tensor.numel() * tensor.element_size()
    return found


def held_bytes(batch: Any) -> int:
    """Return what a batch takes in memory: what is pinned comes in pieces of a power of two."""
    pinned = {id(t): t.nbytes for t in tensors_of(batch) if t.device.type == "cpu" and t.is_pinned()}
    return trees.nbytes(batch) + sum((1 << (size - 1).bit_length()) - size for size in pinned.values() if size)


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


def in_own_containers(batch: Any) -> Any:
    """Return a batch in containers and objects of its own around the same tensors, to put other tensors into."""
    return trees.map_leaves(_in_own_object, batch)


def _in_own_object(leaf: Any) -> Any:
    if not trees.is_primitive(leaf) and containers.inside(leaf):  # such as a graph, which moves itself in place
        with suppress(Exception):  # any user type may refuse
            return copy.copy(leaf)
    return leaf


def _holds_the_same(lent: Any, given: Any) -> bool:
    """Whether containers have the very leaves that others have, at the same places."""
    if lent is given:
        return True
    parts, parts_given = containers.children(lent), containers.children(given)
    if type(lent) is not type(given) or parts is None or parts_given is None:
        tensors = zip(tensors_in(lent), tensors_in(given), strict=False)
        return trees.equal(lent, given) and all(tensor is before for tensor, before in tensors)
    return len(parts) == len(parts_given) and all(
        key == key_given and _holds_the_same(part, part_given)
        for (key, part), (key_given, part_given) in zip(parts, parts_given, strict=True)
    )


def _is_pinned(leaf: Any) -> bool:
    """Whether what a leaf holds lies in pinned memory; an object may hold a few more tensors, for the host only."""
    return any(tensor.device.type == "cpu" and tensor.is_pinned() for tensor in tensors_in(leaf))


class BatchCache:
    """At least one cached batch, served in turn.

    The same objects are handed out again and again, as long as nothing changes them. A train step that works in
    place would make the cached batch decay; from the moment that shows, each step gets a clone. One that only puts
    other tensors into the batch, as `batch[key] = batch[key].to(device)` does, gets containers of its own.

    Args:
        batches: At least one.
        wait: Waits until a clone is made, where its reader does not.
    """

    def __init__(self, batches: list[CachedBatch], wait: Callable[[], None] = lambda: None) -> None:
        self.batches, self._wait = batches, wait
        self._next = self._exchanged = 0
        self._watch()
        self.clones = False
        """Each serving is a clone."""
        self.renews = False
        """Each serving is in containers of its own."""

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def nbytes(self) -> int:
        return sum(held_bytes(cached.batch) for cached in self.batches)

    def serve(self) -> CachedBatch:
        cached = self.batches[self._next]
        self._next = (self._next + 1) % len(self.batches)
        if not (self.clones or self.renews):
            return cached
        lent = CachedBatch(self.lend(cached.batch), cached.samples)
        if self.clones:
            self._wait()
        return lent

    def lend(self, batch: Any) -> Any:
        """Return a batch that may be used as those that are served are, and stays as it is."""
        if self.clones:
            return copy_batch(batch)
        return in_own_containers(batch) if self.renews else batch

    def exchange(self, fresh: Iterable[CachedBatch], *, whole: bool) -> None:
        """Serve other batches from now on.

        Args:
            fresh: At least one; each is made when the ones whose place it takes are gone.
            whole: Instead of all that are here; otherwise each takes the place of one, in turn.
        """
        if whole:
            self._tensors: list[list[torch.Tensor]] = []
            self.batches = []
            self.batches.extend(fresh)
        else:
            for cached in fresh:
                self._exchanged = (self._exchanged + 1) % len(self.batches)
                self.batches[self._exchanged] = cached
        self.rewind()
        self._watch()

    def rewind(self) -> None:
        self._next = 0

    def probe(self, use: Callable[[Any], Any], *, limit_s: float = PROBING_S) -> bool:
        """Use each batch once, put back what it changed, and clone from then on if it changed any data.

        Where all data are as they were, but not in their containers any more, new containers are enough.
        A slow step is tried on as many batches as there is time for; the others are watched while they are used.
        """
        started = time.perf_counter()
        for number, cached in enumerate(self.batches):
            if number and time.perf_counter() - started > limit_s:
                break
            pristine, lent = copy_batch(cached.batch), in_own_containers(cached.batch)
            use(lent)
            if not trees.equal(pristine, cached.batch):
                self.batches[number] = CachedBatch(pristine, cached.samples)
                self.clones = True
            elif not _holds_the_same(lent, cached.batch):
                self.renews = True
        self._watch()
        return self.clones

    def _watch(self) -> None:
        # The tensors are looked up once: after every block, a walk through large batches would take its time.
        self._tensors = [[t for t in tensors_of(cached.batch) if not t.is_inference()] for cached in self.batches]
        self._expected = self._versions()

    def _versions(self) -> list[list[int]]:
        return [[tensor._version for tensor in tensors] for tensors in self._tensors]

    def changed_since_probe(self) -> bool:
        """Whether any batch was changed in place after all; looks at version counters, so it costs nothing."""
        return not self.clones and self._versions() != self._expected

    def clone_from_now_on(self, make: Callable[[], CachedBatch]) -> None:
        """Serve clones, and only of batches that are still what the loader gave; `make` gives one where none is."""
        changed = [now != expected for now, expected in zip(self._versions(), self._expected, strict=True)]
        kept = [cached for cached, spoilt in zip(self.batches, changed, strict=True) if not spoilt]
        self.batches = kept or [make()]
        self._next = 0
        self._watch()
        self.clones = True
