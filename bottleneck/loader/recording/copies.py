"""Copies of recorded data when it is served, made where the job makes its own; and checksums of other data."""

from __future__ import annotations

import copy
import pickle
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image

from bottleneck.job import containers
from bottleneck.loader import objects, trees
from bottleneck.loader.trees import TreePath


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


class CopyOnPickle:
    """Stands for what goes to another process: its tensors are copied whenever the queue pickles it.

    That is what a queue does with tensors in private memory, and what a batch takes whose collation takes nothing.

    Args:
        value: A tensor, or an object of any type.
        tensors: Those in it.
    """

    def __init__(self, value: Any, tensors: list[torch.Tensor]) -> None:
        self._value = value
        self._tensors = tensors

    def copy(self) -> Any:
        """Return a copy whose tensors are in shared memory."""
        copies: dict[int, Any] = {id(tensor): shared_copy(tensor) for tensor in self._tensors}
        return trees.map_leaves(lambda leaf: copy.deepcopy(leaf, copies), self._value)

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[Any]]:
        return trees.as_it_is, (self.copy(),)


def copy_on_pickle(part: Any) -> Any:
    """Return a part of a batch such that its tensors go to another process as copies."""
    tensors = find_tensors(part)
    if tensors is None:
        return trees.copy_deep(part)
    return CopyOnPickle(part, tensors) if tensors else part


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
        self._make = self.compile(self.value, (), frozenset())
        self.nbytes = trees.nbytes(self.value)

    def serve(self, *, copies: bool = True) -> Any:
        """Return a copy, or the recorded object itself."""
        return self._make() if copies and self._make is not None else self.value

    def compile(self, value: Any, path: TreePath, kept: frozenset[TreePath]) -> Callable[[], Any] | None:
        """Return what makes a copy of a tree; None if the same objects will do, as at the paths that are kept.

        What travels to another process is pickled, and so copied, by the queue. Walking through thousands of plain
        Python objects to copy them once more would be charged to the hand-off.
        """
        if path in kept or trees.is_primitive(value):
            return None
        parts = containers.children(value)
        if parts is None or (self._share and not containers.takes_anything(value)):
            return self._make_whole(value, path)
        makers = [(key, self.compile(part, (*path, key), kept), part) for key, part in parts]
        if self._share and not any(make for _, make, _ in makers):
            return None
        return lambda: containers.rebuild(value, [(key, make() if make else part) for key, make, part in makers])

    def _make_whole(self, value: Any, path: TreePath) -> Callable[[], Any] | None:
        """Return what makes a copy of a tensor, or of an object that is not taken apart."""
        tensors = find_tensors(value) if self._share else None
        if tensors is None:
            return lambda: private_copy(value) if isinstance(value, torch.Tensor) else trees.copy_deep(value)
        if not tensors:
            return None
        travelling = CopyOnPickle(value, tensors)
        return travelling.copy if path in self._shared_places else lambda: travelling


def find_tensors(value: Any) -> list[torch.Tensor] | None:
    """Return the tensors in a tree of objects of any type; None if that cannot be found out."""
    found: dict[int, torch.Tensor] = {}
    # Leaf by leaf: a container may make others of its tensors as it is pickled.
    for leaf in trees.leaves(value):
        tensors = (leaf,) if isinstance(leaf, torch.Tensor) else objects.find_tensors(leaf)
        if tensors is None:
            return None
        found |= {id(tensor): tensor for tensor in tensors}
    return list(found.values())


def _find_shared(value: Any, path: TreePath) -> Iterator[TreePath]:
    """Yield the paths of values that are copied as a whole and have tensors in shared memory."""
    parts = containers.children(value) if containers.takes_anything(value) else None
    if parts is None:
        if not trees.is_primitive(value) and any(map(is_shared, find_tensors(value) or ())):
            yield path
        return
    for key, part in parts:
        yield from _find_shared(part, (*path, key))


def is_shared(tensor: torch.Tensor) -> bool:
    """Return True if a tensor of the CPU lies in shared memory."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        return False
    return bool(tensor.is_shared())  # type: ignore[no-untyped-call]  # torch has no annotations for it


def shared_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor into fresh shared memory, in one pass, with the strides that a clone would have."""
    if not _is_in_memory(tensor):
        return objects.copy_tensor(tensor)
    if type(tensor) is not torch.Tensor:
        copied = shared_copy(tensor.as_subclass(torch.Tensor)).as_subclass(type(tensor))
        vars(copied).update(vars(tensor))
        return copied
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
    if small or tensor.numel() // len(tensor) >= _COPIED_BY_ONE_THREAD or not _is_plain(tensor):
        return objects.copy_tensor(tensor)
    fresh = torch.empty_like(tensor)
    into, source = (side.detach().view(-1).view(torch.uint8).numpy() for side in (fresh, tensor))
    np.copyto(into, source)
    return fresh.requires_grad_(tensor.requires_grad)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return True if a tensor is nothing but its elements, one after the other in memory."""
    if type(tensor) is not torch.Tensor or not _is_in_memory(tensor):
        return False
    return tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())


def _is_in_memory(tensor: torch.Tensor) -> bool:
    """Return True if the elements of a tensor, which may be of a subclass, are in memory of the CPU."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        return False
    return tensor.numel() > 0 and not tensor.is_quantized


_MAX_CHECKED_BYTES, _LEAF_BYTES = 1 << 26, 256
"""Bytes of one kind of recorded data that are checked, and the least that a leaf counts: there may be millions of
numbers."""


def checksum(values: list[Any]) -> int:
    """Return a checksum of recorded data; what changes some of it in place changes the first of it, too."""
    total = taken = 0
    for value in values:
        for leaf in trees.leaves(value):
            if taken > _MAX_CHECKED_BYTES:
                return total
            content = bytes_of(leaf)
            taken += len(content) + _LEAF_BYTES
            total = zlib.crc32(content, total)
    return total


def bytes_of(leaf: Any) -> Any:
    """Return the bytes of a leaf; none if it is read or decoded only when it is used, or cannot be pickled."""
    try:
        if isinstance(leaf, torch.Tensor):
            return trees.tensor_bytes(leaf).cpu().numpy().data
        if trees.is_lazy_image(leaf) or trees.is_shared_map(leaf):
            return b""
        if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
            return np.ascontiguousarray(leaf).view(np.uint8).reshape(-1).data
        return leaf.tobytes() if isinstance(leaf, Image.Image) else pickle.dumps(leaf)
    except Exception:  # noqa: BLE001 - any user type may refuse
        return b""
