"""Batches cached in the main process: how many fit, how they are copied, and whether steps change them."""

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

_MIN_BYTES = 1 << 30
"""Bytes that caches may always take, though no more than `_MIN_SHARE` of the free memory."""
_MIN_SHARE = 0.1
_MAX_SHARE = 0.25
"""Share of the free memory that caches never exceed by default."""
_BATCHES_OF_WORKER = 3
"""Batches cached in a worker: a collated one, and the samples of one with the inputs of their stages."""
_BATCHES_OF_MAIN = 8


@dataclass(frozen=True)
class CacheBudget:
    """Memory limits of each kind of cache.

    Attributes:
        worker_bytes: Recorded data in each worker.
        host_bytes: Batches in host memory, in the main process; the same in device memory, if free.
    """

    worker_bytes: int
    host_bytes: int

    def on_device(self, free_bytes: int | None) -> int:
        """Return the limit for batches in device memory, given its free bytes (None if unknown)."""
        return self.host_bytes if free_bytes is None else min(self.host_bytes, int(_MAX_SHARE * free_bytes))


def choose_budget(
    batch_bytes: int, workers: int, *, given: int | None, free_bytes: int, device_shares: bool
) -> CacheBudget:
    """Divide the memory for caches.

    Args:
        batch_bytes: Size of one collated batch.
        workers: Processes that record; at least one.
        given: Limit set by the user for all caches together; None for the job's needs, within a quarter of the free
            memory.
        free_bytes: Free memory.
        device_shares: True if caches on the device use the same memory, or count towards the user's limit.

    Raises:
        MeasurementError: Not even one batch fits in the main process.
    """
    copies = 2 if device_shares else 1
    for_workers, for_main = _BATCHES_OF_WORKER * workers * batch_bytes, _BATCHES_OF_MAIN * copies * batch_bytes
    needed = for_workers + for_main
    if given is None:
        total = max(min(_MIN_BYTES, int(_MIN_SHARE * free_bytes)), min(needed, int(_MAX_SHARE * free_bytes)))
        most = free_bytes // 2  # one batch has to be kept in any case
    else:
        total = most = given
    if copies * batch_bytes > most:
        raise MeasurementError(
            f"One batch takes {size(copies * batch_bytes)} in the caches, which may take {size(most)}.",
            f"Allow more: {cache_option(wanted_bytes(batch_bytes, _BATCHES_OF_WORKER * batch_bytes, workers))}.",
        )
    # A quarter for the main process; more if the workers need less, less if it needs less itself.
    shares = sorted((total // 4, total - for_workers, for_main))
    main = max(shares[1], copies * batch_bytes)
    return CacheBudget(max(0, total - main) // workers, main // copies)


def wanted_bytes(batch_bytes: int, recorded_bytes: int, workers: int) -> int:
    """Return the bytes that all caches together need to measure everything, even if the device shares them.

    Args:
        batch_bytes: Size of one collated batch.
        recorded_bytes: Size of a batch that a worker records whole.
    """
    for_workers = workers * recorded_bytes
    return for_workers + max(2 * _BATCHES_OF_MAIN * batch_bytes, for_workers // 3 + 1)


PROBING_S = 3.0
"""Seconds for trying a train step on cached batches."""


@dataclass(frozen=True)
class CachedBatch:
    """A batch and its number of samples."""

    batch: Any
    samples: int


def tensors_in(leaf: Any) -> list[torch.Tensor]:
    """Return the tensors in one leaf of a tree: itself, or those of an object with a method `to`, such as a graph."""
    return [] if trees.is_primitive(leaf) else [tensor for _, tensor in containers.tensors(leaf)]


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a tree."""
    return [tensor for leaf in trees.leaves(value) for tensor in tensors_in(leaf)]


def is_on_device(batch: Any) -> bool:
    """Return True if any part of a batch is already on a device when the loader returns it."""
    return any(tensor.device.type != "cpu" for tensor in tensors_of(batch))


def tensor_bytes(value: Any) -> Counter[torch.device]:
    """Return the bytes of a tree's tensors, by device; each tensor counts once."""
    found: Counter[torch.device] = Counter()
    for tensor in {id(tensor): tensor for tensor in tensors_of(value)}.values():
        found[tensor.device] += tensor.numel() * tensor.element_size()
    return found


def held_bytes(batch: Any) -> int:
    """Return the bytes that a batch takes; pinned memory is allocated in powers of two."""
    pinned = {id(t): t.nbytes for t in tensors_of(batch) if t.device.type == "cpu" and t.is_pinned()}
    return trees.nbytes(batch) + sum((1 << (size - 1).bit_length()) - size for size in pinned.values() if size)


def keep_on_host(batch: Any) -> Any:
    """Return a batch that outlives its worker: shared memory is copied to private memory, pinned memory is kept."""
    return trees.map_leaves(lambda leaf: leaf if _is_pinned(leaf) else trees.copy_leaf(leaf), batch)


def copy_batch(batch: Any) -> Any:
    """Copy a batch; pinned memory is copied to pinned memory, so that moving the copy takes as long."""
    return trees.map_leaves(_copy_in_kind, batch)


def _copy_in_kind(leaf: Any) -> Any:
    if not _is_pinned(leaf):
        return trees.copy_leaf(leaf)
    if isinstance(leaf, torch.Tensor):
        return torch.empty_like(leaf, pin_memory=True).copy_(leaf)
    copied = trees.copy_leaf(leaf)
    return copied.pin_memory() if callable(getattr(copied, "pin_memory", None)) else copied


def in_own_containers(batch: Any) -> Any:
    """Return a batch in new containers and objects around the same tensors, so that others can be put into it."""
    return trees.map_leaves(_in_own_object, batch)


def _in_own_object(leaf: Any) -> Any:
    if not trees.is_primitive(leaf) and containers.inside(leaf):  # such as a graph, which moves itself in place
        with suppress(Exception):  # any user type may refuse
            return copy.copy(leaf)
    return leaf


def _holds_the_same(lent: Any, given: Any) -> bool:
    """Return True if containers have the identical leaves at the same places."""
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
    """Return True if a leaf is in pinned memory; an object may have a few more tensors, for the host only."""
    return any(tensor.device.type == "cpu" and tensor.is_pinned() for tensor in tensors_in(leaf))


class BatchCache:
    """At least one cached batch, served in turn.

    The same objects are served again and again, as long as nothing changes them. A train step that works in place
    would spoil the cached batch; once that shows, each step gets a clone. A step that only puts other tensors into the
    batch, as `batch[key] = batch[key].to(device)` does, gets new containers.

    Args:
        batches: At least one.
        wait: Waits until a clone is made, if its reader does not.
    """

    def __init__(self, batches: list[CachedBatch], wait: Callable[[], None] = lambda: None) -> None:
        self.batches = batches
        self._wait = wait
        self._next = self._exchanged = 0
        self._watch()
        self.clones = False
        """True if each serving is a clone."""
        self.renews = False
        """True if each serving is in new containers."""

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
        """Return a batch that may be used like the served ones, and leaves the original unchanged."""
        if self.clones:
            return copy_batch(batch)
        return in_own_containers(batch) if self.renews else batch

    def exchange(self, fresh: Iterable[CachedBatch], *, whole: bool) -> None:
        """Serve other batches.

        Args:
            fresh: At least one; each is made after those that it replaces are released.
            whole: True to replace all; otherwise each replaces one, in turn.
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
        """Use each batch once, restore it if changed, and serve clones if any data were changed.

        If only the containers were changed, new containers are enough. A slow step is tried on as many batches as there
        is time for; the others are watched while they are used.
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
        # Tensors are looked up once: a walk through large batches after every block would take too long.
        self._tensors = [[t for t in tensors_of(cached.batch) if not t.is_inference()] for cached in self.batches]
        self._expected = self._versions()

    def _versions(self) -> list[list[int]]:
        return [[tensor._version for tensor in tensors] for tensors in self._tensors]

    def changed_since_probe(self) -> bool:
        """Return True if any batch was changed in place after all; version counters make the check cheap."""
        return not self.clones and self._versions() != self._expected

    def clone_from_now_on(self, make: Callable[[], CachedBatch]) -> None:
        """Serve clones, and only of unchanged batches; `make` returns a batch if there is none."""
        changed = [now != expected for now, expected in zip(self._versions(), self._expected, strict=True)]
        kept = [cached for cached, spoilt in zip(self.batches, changed, strict=True) if not spoilt]
        self.batches = kept or [make()]
        self._next = 0
        self._watch()
        self.clones = True
