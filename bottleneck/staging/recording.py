"""What a worker records of the user's samples and batches, and how it serves them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bottleneck.staging import trees
from bottleneck.staging.cutting import Call

Path = tuple[Any, ...]


@dataclass
class Unit:
    """What one fetch returned: a sample, or a whole list of them from `__getitems__`."""

    request: Any
    """The index or indices that it was fetched with."""
    value: Any
    """A copy of what was returned."""
    calls: list[Call]
    holes: list[tuple[int, Path, Path]] = field(default_factory=list)
    """(number of the call, path in its output, path in the value): where outputs of cuts went."""
    locals: dict[str, Any] | None = None
    """Local variables at the first call of the augmentation; see `bottleneck.staging.tail`."""
    nbytes: int = 0


@dataclass
class RecordedBatch:
    """The units of one batch, and the batch they were collated to."""

    units: list[Unit]
    size: int
    """Samples in the batch."""
    collated: Served | None = None


def _identities(value: Any) -> dict[int, Path]:
    """Map the identity of every node of a tree that has one to the path where it was met first."""
    found: dict[int, Path] = {}

    def visit(node: Any, path: Path) -> None:
        if trees.is_primitive(node) or id(node) in found:
            return
        found[id(node)] = path
        for key, part in trees.children(node) or ():
            visit(part, (*path, key))

    visit(value, ())
    return found


def find_holes(value: Any, calls: list[Call]) -> list[tuple[int, Path, Path]]:
    """Find where the outputs of cuts stand, as the same objects, in what the dataset returned.

    Later calls win: when one output went through several cuts, the last one filled the hole.
    """
    places = _identities(value)
    holes: list[tuple[int, Path, Path]] = []
    taken: set[Path] = set()

    def visit(number: int, node: Any, path: Path) -> None:
        if trees.is_primitive(node):
            return
        place = places.get(id(node))
        if place is not None:
            if place not in taken:
                taken.add(place)
                holes.append((number, path, place))
            return
        for key, part in trees.children(node) or ():
            visit(number, part, (*path, key))

    for number in reversed(range(len(calls))):
        visit(number, calls[number].original, ())
    return holes


def follow(tree: Any, path: Path) -> Any:
    """Return the node of a tree at a path."""
    for key in path:
        tree = dict(trees.children(tree) or ())[key] if not isinstance(tree, (list, dict, tuple)) else tree[key]
    return tree


def replace_at(tree: Any, path: Path, value: Any) -> Any:
    """Return the tree with the node at a path replaced; the containers on the way are rebuilt."""
    if not path:
        return value
    parts = [
        (key, replace_at(part, path[1:], value) if key == path[0] else part) for key, part in trees.children(tree) or ()
    ]
    return trees.rebuild(tree, parts)


def forget_originals(unit: Unit) -> None:
    """Let go of the user's own objects; only copies are kept."""
    for call in unit.calls:
        call.original = None


def storages(value: Any) -> set[int]:
    """Addresses of the memory behind the tensors and arrays of a tree."""
    found: set[int] = set()
    for leaf in trees.leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and leaf.numel():
            found.add(leaf.untyped_storage().data_ptr())
        elif isinstance(leaf, np.ndarray) and leaf.size:
            found.add(leaf.__array_interface__["data"][0])
    return found


class Served:
    """A recorded object that is served as a fresh copy each time.

    A tensor that a worker returns twice travels as a mere file descriptor: too fast by far, one descriptor lost
    each time, and the train step would write into the worker's cache. So each serving copies the tensors, straight
    into shared memory in a worker, as `default_collate` does.

    Args:
        value: The object; it is copied.
        make_tensor: Copies one tensor; `shared_copy` in a worker.
    """

    def __init__(self, value: Any, make_tensor: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._value = trees.copy_deep(value)
        self._make_tensor = make_tensor
        self.nbytes = trees.nbytes(self._value)

    def serve(self) -> Any:
        """Return a fresh copy."""
        return trees.map_leaves(self._serve_leaf, self._value)

    def _serve_leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self._make_tensor(leaf)
        if trees.is_primitive(leaf):
            return leaf
        if hasattr(leaf, "__dict__"):
            # An object of the user's may hold tensors of its own, which must not travel twice either.
            return trees.copy_leaf(leaf)
        return leaf


def shared_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor into fresh shared memory, in one pass, with the strides that a clone would have."""
    if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or tensor.is_quantized:
        return tensor.clone()
    if not tensor.numel() or tensor.device.type != "cpu":
        return tensor.clone()
    strides = torch.empty_like(tensor, device="meta").stride()
    storage = torch.UntypedStorage._new_shared(tensor.numel() * tensor.element_size())  # type: ignore[no-untyped-call]
    fresh = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.shape, strides)
    return fresh.copy_(tensor)


def private_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor within this process."""
    return tensor.clone()


class Pool:
    """Recorded batches, in the loader's own order, within a number of bytes.

    Args:
        budget_bytes: What all recorded units and batches together may take.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.batches: list[RecordedBatch] = []
        self.nbytes = 0
        self._next = 0

    def has_room(self, nbytes: int) -> bool:
        """Whether something of this size still fits."""
        return self.nbytes + nbytes <= self.budget_bytes

    def add(self, batch: RecordedBatch, nbytes: int) -> None:
        """Keep a batch, whose size has been found to fit."""
        self.batches.append(batch)
        self.nbytes += nbytes

    def next_batch(self, size: int | None) -> RecordedBatch:
        """Return the next batch in turn; of the wanted size if there is one."""
        count = len(self.batches)
        for offset in range(count):
            candidate = self.batches[(self._next + offset) % count]
            if size is None or candidate.size == size:
                self._next = (self._next + offset + 1) % count
                return candidate
        self._next = (self._next + 1) % count
        return self.batches[self._next - 1]
