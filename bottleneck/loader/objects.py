"""Objects of any type, such as the graphs of a library: the tensors in one, its size, and a copy.

A sample of a data set in memory is often an object with views of a few large storages. It counts, and is copied, by
what it holds of them; to pickle or deep-copy it takes all of each storage.
"""

from __future__ import annotations

import copy
import io
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Held:
    """The content of an object: its tensors, each once, and the bytes of all that it holds."""

    tensors: tuple[torch.Tensor, ...]
    nbytes: int


_STUB: tuple[Any, ...] = (int, ())
"""Pickled in place of objects that cannot be."""


class _Finder(pickle.Pickler):
    """Pickles an object without its tensors and arrays of numbers, which may be large."""

    def __init__(self) -> None:
        self.stream = io.BytesIO()
        super().__init__(self.stream)
        self.tensors: dict[int, torch.Tensor] = {}
        self.arrays: dict[int, np.ndarray[Any, Any]] = {}

    def reducer_override(self, obj: Any) -> Any:  # not called for plain Python objects, of which there may be many
        if isinstance(obj, torch.Tensor):
            self.tensors[id(obj)] = obj
            return _STUB
        if isinstance(obj, np.ndarray) and not obj.dtype.hasobject:
            self.arrays[id(obj)] = obj
            return _STUB
        return NotImplemented


def look_inside(value: Any) -> Held | None:
    """Return the contents of an object; None if it cannot be pickled, so that they are unknown."""
    finder = _Finder()
    try:
        finder.dump(value)
    except Exception:  # noqa: BLE001 - any user type may refuse
        return None
    tensors = tuple(finder.tensors.values())
    sizes = [*map(tensor_nbytes, tensors), *(int(array.nbytes) for array in finder.arrays.values())]
    return Held(tensors, finder.stream.tell() + sum(sizes))


def find_tensors(value: Any) -> tuple[torch.Tensor, ...] | None:
    """Return the tensors in an object, each once; None if it cannot be pickled."""
    held = look_inside(value)
    return None if held is None else held.tensors


def tensor_nbytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements; a guess for one that is not dense."""
    return int(tensor.numel() * tensor.element_size()) if tensor.layout == torch.strided else 1024


def copy_object(value: Any) -> Any:
    """Return a deep copy whose tensors have storages of their own, no larger than they are.

    Raises:
        Exception: That of a type which refuses to be copied.
    """
    tensors = find_tensors(value) or ()
    # A parameter becomes a plain tensor by `clone`.
    plain = (tensor for tensor in tensors if not isinstance(tensor, torch.nn.Parameter))
    return copy.deepcopy(value, {id(tensor): copy_tensor(tensor) for tensor in plain})


def copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor; one that wants a gradient stays a leaf, because no other goes to another process."""
    if tensor.requires_grad and tensor.is_leaf:
        return tensor.detach().clone().requires_grad_()
    return tensor.clone()
