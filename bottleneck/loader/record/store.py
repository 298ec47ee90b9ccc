"""What a worker records of the user's samples and batches, and how it serves them again."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bottleneck.job import containers
from bottleneck.loader import trees
from bottleneck.loader.record.tape import Call
from bottleneck.loader.replay.replay import Replay
from bottleneck.loader.replay.template import Fill, OutputSlot, TreePath, make_fill


@dataclass
class RecordedItem:
    """What one fetch returned: a sample, or a whole list of them from `__getitems__`."""

    request: Any
    """The index or indices that it was fetched with."""
    value: Any
    """A copy of what was returned."""
    calls: list[Call]
    slots: list[OutputSlot] = field(default_factory=list)
    """Where the outputs of cuts went."""
    fill: Fill | None = None
    """Puts fresh outputs into the value; None until the plan is known."""
    locals: dict[str, Any] | None = None
    """Local variables at the first call of the augmentation; see `bottleneck.loader.replay.tail`."""
    nbytes: int = 0
    replays: dict[int, Replay] = field(default_factory=dict)
    """How its item is made again in a mode, once it has been."""


@dataclass
class RecordedBatch:
    """The items of one batch, and the batch they were collated to."""

    items: list[RecordedItem]
    size: int
    """Samples in the batch."""
    collated: ServedBatch | None = None
    calls: list[Call] = field(default_factory=list)
    """Calls of marked stages within the collate function."""
    slots: list[OutputSlot] = field(default_factory=list)
    """Where their outputs went."""
    around: Callable[[list[Any]], Any] | None = None
    """Serves the batch with fresh outputs in their places; None until it has been."""
    replays: dict[int, Replay] = field(default_factory=dict)
    """How it is collated again in a mode, once it has been."""

    def serve_around(self, outputs: list[Any]) -> Any:
        """Return a fresh copy with the outputs of its calls in their places; these are not copied once more."""
        if self.collated is None:
            return None
        if self.around is None:
            given = storages([(call.args, call.kwargs) for call in self.calls])
            # What hands on what it was given would give the same tensor each time.
            slots = self.slots if not storages(outputs) & given else []
            self.around = self.collated.around(slots)
        return self.around(outputs)


def storages(value: Any) -> set[int]:
    """Addresses of the memory behind the tensors and arrays of a tree."""
    found: set[int] = set()
    for leaf in trees.leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and leaf.numel():
            found.add(leaf.untyped_storage().data_ptr())
        elif isinstance(leaf, np.ndarray) and leaf.size:
            found.add(leaf.__array_interface__["data"][0])
    return found


_COPIED_BY_ONE_THREAD = 32_768
"""Elements up to which PyTorch copies a tensor with one thread."""


class CopiedOnTheWay:
    """In the place of a tensor that goes to another process: the queue copies it into shared memory, each time anew.

    That is what it does with a tensor in private memory, and what a batch takes whose collation takes nothing.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __reduce__(self) -> tuple[Callable[[torch.Tensor], torch.Tensor], tuple[torch.Tensor]]:
        tensor, kind = self._tensor, type(self._tensor)
        if kind is torch.Tensor:
            return arrived, (shared_copy(tensor),)
        copied = shared_copy(tensor.as_subclass(torch.Tensor)).as_subclass(kind)
        vars(copied).update(vars(tensor))
        return arrived, (copied,)


def copied_on_the_way(part: Any) -> Any:
    """Return a part of a batch such that it goes to another process as a copy."""
    if isinstance(part, torch.Tensor) and _is_in_memory(part):
        return CopiedOnTheWay(part)
    return part if isinstance(part, np.ndarray) else trees.copy_deep(part)  # the queue pickles arrays


def arrived(tensor: torch.Tensor) -> torch.Tensor:
    """What the other process gets instead."""
    return tensor


class ServedBatch:
    """A recorded object that is served as a fresh copy each time.

    A tensor that a worker returns twice travels as a mere file descriptor: far too fast, one descriptor leaked
    each time, and the train step would write into the worker's cache. So each serving copies the tensors: straight
    into shared memory where the user's collate function wrote them there, as `default_collate` does in a worker,
    and on the way where it did not. Otherwise what the hand-off does would be charged to the collation, or the other
    way round.

    Args:
        value: The object; it is copied.
        travels: It goes to another process, through a queue that pickles it.
    """

    def __init__(self, value: Any, *, travels: bool = False) -> None:
        self.value = trees.copy_deep(value)
        self._share = travels
        self._shared_places = frozenset(_find_shared(value, ()))
        self._make = self._compile(self.value, (), frozenset(), on_the_way=travels)
        self.nbytes = trees.nbytes(self.value)

    def serve(self, *, copies: bool = True) -> Any:
        """Return a copy, or the recorded object itself."""
        return self._make() if copies and self._make is not None else self.value

    def around(self, slots: list[OutputSlot]) -> Callable[[list[Any]], Any]:
        """Return what serves a copy of it with fresh outputs of calls in their places."""
        if not slots:
            return lambda _: self.serve()
        value, fill = self.value, make_fill(self.value, slots)
        make = self._compile(value, (), frozenset(slot.outer for slot in slots), on_the_way=self._share)
        return lambda outputs: fill(value if make is None else make(), outputs)

    def _compile(
        self, value: Any, path: TreePath, kept: frozenset[TreePath], *, on_the_way: bool
    ) -> Callable[[], Any] | None:
        """Return what makes a copy of a tree; None where the same objects will do, as at the paths that are kept.

        What travels to another process is pickled, and so copied, by the queue. Walking through thousands of plain
        Python objects to copy them once more would be charged to the hand-off.
        """
        if path in kept or trees.is_primitive(value):
            return None
        if isinstance(value, torch.Tensor):
            return self._make_tensor(value, shared=path in self._shared_places, on_the_way=on_the_way)
        parts = containers.children(value)
        if parts is None:
            shared = self._share and not _holds_tensors(value)
            return None if shared else lambda: trees.copy_leaf(value)
        on_the_way = on_the_way and containers.takes_anything(value)
        makers = [(key, self._compile(part, (*path, key), kept, on_the_way=on_the_way), part) for key, part in parts]
        if self._share and not any(make for _, make, _ in makers):
            return None
        return lambda: containers.rebuild(value, [(key, make() if make else part) for key, make, part in makers])

    def _make_tensor(self, tensor: torch.Tensor, *, shared: bool, on_the_way: bool) -> Callable[[], Any]:
        if shared:
            return lambda: shared_copy(tensor)
        if on_the_way and _is_in_memory(tensor):
            travelling = CopiedOnTheWay(tensor)
            return lambda: travelling
        return lambda: private_copy(tensor)


class _TensorFinder(pickle.Pickler):
    """Notices tensors inside objects of any type."""

    found = False

    def persistent_id(self, obj: Any) -> str | None:
        if isinstance(obj, torch.Tensor):
            self.found = True
            return "tensor"
        return None


def _holds_tensors(value: Any) -> bool:
    """Whether an object holds tensors; taken to be so where that cannot be found out."""
    finder = _TensorFinder(io.BytesIO())
    try:
        finder.dump(value)
    except Exception:  # noqa: BLE001 - any user type may refuse
        return True
    return finder.found


def _find_shared(value: Any, path: TreePath) -> Iterator[TreePath]:
    """Yield the paths of the tensors in a tree that lie in shared memory."""
    if isinstance(value, torch.Tensor):
        if _is_shared(value):
            yield path
    elif not trees.is_primitive(value):
        for key, part in containers.children(value) or ():
            yield from _find_shared(part, (*path, key))


def _is_shared(tensor: torch.Tensor) -> bool:
    """Whether a tensor of the CPU lies in shared memory."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        return False
    return bool(tensor.is_shared())  # type: ignore[no-untyped-call]  # torch has no annotations for it


def shared_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor into fresh shared memory, in one pass, with the strides that a clone would have."""
    if not _has_plain_memory(tensor):
        return trees.copy_tensor(tensor)
    strides = torch.empty_like(tensor, device="meta").stride()
    size = tensor.numel() * tensor.element_size()
    storage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]  # torch's
    fresh = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.shape, strides)
    return fresh.copy_(tensor.detach()).requires_grad_(tensor.requires_grad)


def private_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor within this process, with no more threads than it takes to put its samples together.

    PyTorch copies all of a large tensor with several threads. A batch of small samples is stacked by one of them, and
    where a core is busy, waiting for the second thread takes milliseconds: the serving would be slower than the stage.
    """
    small = tensor.numel() < _COPIED_BY_ONE_THREAD
    plain = _has_plain_memory(tensor) and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
    if small or tensor.numel() // len(tensor) >= _COPIED_BY_ONE_THREAD or not plain:
        return trees.copy_tensor(tensor)
    fresh = torch.empty_like(tensor)
    into, source = (side.detach().view(-1).view(torch.uint8).numpy() for side in (fresh, tensor))
    np.copyto(into, source)
    return fresh.requires_grad_(tensor.requires_grad)


def _has_plain_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor is elements in memory of the CPU, and nothing else."""
    return type(tensor) is torch.Tensor and _is_in_memory(tensor)


def _is_in_memory(tensor: torch.Tensor) -> bool:
    """Whether the elements of a tensor, which may have a type of its own, are in memory of the CPU."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        return False
    return tensor.numel() > 0 and not tensor.is_quantized


class RecordingStore:
    """Recorded batches, in the loader's own order, within a number of bytes; it may change while there are none."""

    def __init__(self, budget_bytes: int = 0) -> None:
        self.budget_bytes = budget_bytes
        self.batches: list[RecordedBatch] = []
        self.nbytes = 0
        self._next = 0

    def has_room(self, nbytes: int) -> bool:
        return self.nbytes + nbytes <= self.budget_bytes

    def clear(self) -> None:
        self.batches.clear()
        self.nbytes = self._next = 0

    def add(self, batch: RecordedBatch, nbytes: int) -> None:
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
