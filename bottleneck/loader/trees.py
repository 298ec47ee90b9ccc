"""Copy, compare and size the nested containers that datasets and collate functions return.

A tree is any nesting of mappings, lists, tuples, named tuples and dataclasses; everything else is a leaf.

Some leaves are read or decoded only when they are used: images that are merely opened, memory maps, HDF5, Zarr. A plain
copy would read them, and the work would move from the stage that does it to the one that copies.
"""

from __future__ import annotations

import copyreg
import io
import mmap
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFile

from bottleneck.job.containers import children, is_dataclass_instance, rebuild
from bottleneck.loader.objects import copy_object, copy_tensor, look_inside, tensor_nbytes

TreePath = tuple[Any, ...]
"""Keys from the root of a tree to one of its nodes."""
_PIECE_BYTES = 1 << 24
_PRIMITIVES = (int, float, complex, bool, str, bytes, type(None))
_LAZY_PACKAGES = frozenset(
    ("h5py", "zarr", "dask", "tables", "netCDF4", "xarray", "tensorstore", "pyvips", "decord", "torchcodec")
)


def as_it_is(value: Any) -> Any:
    """Return what it gets: in place of a copy, a collation, or what another process is to make of it."""
    return value


def is_primitive(value: Any) -> bool:
    """Return True if a value is an immutable scalar that needs no copy and has no identity worth following."""
    return isinstance(value, _PRIMITIVES)


def map_leaves(function: Callable[[Any], Any], value: Any, within: Callable[[Any], bool] | None = None) -> Any:
    """Rebuild a tree with `function` applied to every leaf.

    Args:
        function: What is applied.
        value: The tree.
        within: Which containers are rebuilt; the others count as leaves. None: all of them.
    """
    kind = type(value)
    # The usual containers by themselves: a batch can hold tens of thousands of objects.
    if kind is dict:
        return {key: map_leaves(function, part, within) for key, part in value.items()}
    if kind is list:
        return [map_leaves(function, part, within) for part in value]
    if kind is tuple:
        return tuple([map_leaves(function, part, within) for part in value])
    is_leaf = is_primitive(value) or not (within is None or within(value))
    parts = None if is_leaf else children(value)
    if parts is None:
        return function(value)
    try:
        return rebuild(value, [(key, map_leaves(function, part, within)) for key, part in parts])
    except TypeError:
        return function(value)


def leaves(value: Any) -> list[Any]:
    """Return the leaves of a tree, depth first."""
    found: list[Any] = []
    _gather(value, found)
    return found


def _gather(value: Any, found: list[Any]) -> None:
    parts = _parts(value)
    if parts is None:
        found.append(value)
        return
    for part in parts:
        if type(part) in _PRIMITIVES:
            found.append(part)
        else:
            _gather(part, found)


def _parts(value: Any) -> Iterable[Any] | None:
    """Return the contents of a container, without its keys; None for a leaf."""
    kind = type(value)
    if kind is list or kind is tuple:
        found: Iterable[Any] = value
        return found
    if kind is dict:
        return list(value.values())
    parts = None if is_primitive(value) else children(value)
    return None if parts is None else [part for _, part in parts]


def copy_leaf(leaf: Any) -> Any:
    """Copy one leaf with its data; one that refuses to be copied is returned unchanged."""
    if type(leaf) in _PRIMITIVES or is_primitive(leaf):
        return leaf
    try:
        if isinstance(leaf, torch.Tensor):
            return copy_tensor(leaf)
        if isinstance(leaf, (np.ndarray, Image.Image)):
            return leaf if is_shared_map(leaf) else (is_lazy_image(leaf) and reopen(leaf)) or leaf.copy()
        return copy_object(leaf)
    except Exception:  # noqa: BLE001 - any user type may refuse; the caller checks for mutation
        return leaf


def is_data(value: Any) -> bool:
    """Return True if a value is of a kind that holds data and nothing else."""
    return is_primitive(value) or isinstance(
        value, (torch.Tensor, np.ndarray, np.generic, Image.Image, bytearray, list, tuple, set, frozenset, Mapping)
    )


def copy_deep(value: Any) -> Any:
    """Copy a tree and the data in its leaves."""
    return map_leaves(copy_leaf, value)


class Copier:
    """Deep-copies trees that share leaves, each leaf once as long as it does not change in between."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[Any, Any]] = {}
        self.read: set[str] = set()
        """Names of lazy values that could not be copied without reading them."""

    def copy(self, value: Any) -> Any:
        """Copy a tree; a leaf copied before and unchanged since gives the same copy again."""
        return map_leaves(self._copy_leaf, value)

    def copy_data(self, value: Any) -> Any:
        """Copy a tree, but keep leaves that are not plain data."""
        if not (is_data(value) or is_dataclass_instance(value)):
            return value
        return map_leaves(lambda leaf: self._copy_leaf(leaf) if is_data(leaf) else leaf, value)

    def _copy_leaf(self, leaf: Any) -> Any:
        if is_primitive(leaf):
            return leaf
        _, known = self._copies.get(id(leaf), (None, None))
        if known is not None and equal(known, leaf):
            return known
        name = name_lazy(leaf)
        fresh = copy_leaf(leaf)
        if name is not None and name_lazy(fresh) is None:
            self.read.add(name)
        # The original is kept too, so that no other object gets its identity.
        self._copies[id(leaf)] = (leaf, fresh)
        return fresh


def tensor_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the content of a dense tensor as a row of bytes."""
    plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    if plain.is_quantized:  # a view of it as bytes is none that could be read
        plain = plain.int_repr()
    return plain.contiguous().reshape(-1).view(torch.uint8)


def _equal_tensors(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_nested or b.is_nested:
        return a.is_nested == b.is_nested and equal(list(a.unbind()), list(b.unbind()))
    if (a.shape, a.dtype, a.layout, a.device) != (b.shape, b.dtype, b.layout, b.device):
        return False
    if a.is_meta:  # it has no values
        return True
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.is_quantized:
        return torch.equal(a, b)
    return all(torch.equal(one, other) for one, other in zip(_in_pieces(a), _in_pieces(b), strict=True))


def _in_pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the bytes of a tensor, a piece at a time: to compare them takes memory, on a device that may be full.

    Those of a tensor with other strides, such as images with their channels last, are a copy.
    """
    if tensor.nbytes <= _PIECE_BYTES:
        yield tensor_bytes(tensor)
    elif len(tensor) == 1:
        yield from _in_pieces(tensor[0])
    else:
        for part in torch.split(tensor, max(1, len(tensor) * _PIECE_BYTES // tensor.nbytes)):
            yield from _in_pieces(part)


def equal(a: Any, b: Any) -> bool:
    """Return True if two trees hold the same data, bit for bit (so that NaN equals NaN), with tensors on the same
    devices.

    Leaves of types that can neither be compared nor pickled count as equal; tensors that cannot be compared do not.
    """
    return _equal(a, b, {})


_Begun = dict[tuple[int, int], tuple[Any, Any]]
"""Objects that are compared or have been, kept so that their identities stay theirs."""


def _equal(a: Any, b: Any, begun: _Begun) -> bool:
    if type(a) is not type(b):
        return False
    if a is b and is_shared_map(a):
        return True  # to compare it would read it
    parts_a = None if is_primitive(a) else children(a)
    if parts_a is None:
        return _equal_leaves(a, b, begun)
    parts_b = children(b) or []
    return len(parts_a) == len(parts_b) and all(
        key_a == key_b and _equal(part_a, part_b, begun)
        for (key_a, part_a), (key_b, part_b) in zip(parts_a, parts_b, strict=True)
    )


def _equal_leaves(a: Any, b: Any, begun: _Begun) -> bool:
    if isinstance(a, np.ndarray):
        same_kind = a.shape == b.shape and a.dtype == b.dtype
        return same_kind and bool(a.dtype == object or a.tobytes() == b.tobytes())
    if isinstance(a, Image.Image):
        if a.mode != b.mode or a.size != b.size or is_lazy_image(a) != is_lazy_image(b):
            return False
        # To decode one would change it.
        return _content(a) == _content(b) if is_lazy_image(a) else a.tobytes() == b.tobytes()
    if is_primitive(a):
        return bool(a == b) or (a != a and b != b)  # noqa: PLR0124 - NaN equals NaN here
    is_tensor = isinstance(a, torch.Tensor)
    try:
        return _equal_tensors(a, b) if is_tensor else _equal_objects(a, b, begun)
    except Exception:  # noqa: BLE001 - a user type that cannot be compared says nothing either way
        return not is_tensor  # while a tensor that cannot be compared may have changed


def _equal_objects(a: Any, b: Any, begun: _Begun) -> bool:
    """Compare objects of any type by what would be pickled of them.

    Their own `==` may look at identities only, or refuse; the pickles of equal tensors are not equal.
    """
    if (id(a), id(b)) in begun:
        return True
    begun[id(a), id(b)] = a, b
    return _says_equal(a, b) or _equal(_pickled_parts(a), _pickled_parts(b), begun)


def _says_equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:  # noqa: BLE001 - such as the truth of an array of several elements
        return False


def _pickled_parts(value: Any) -> list[Any]:
    """Return what a pickle of an object holds: how it is made, and its attributes and elements."""
    reduce = copyreg.dispatch_table.get(type(value))
    parts = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL) if reduce is None else reduce(value)
    if isinstance(parts, str):  # the name of something global
        return [parts]
    return [list(part) if isinstance(part, Iterator) else part for part in parts]


def similar(a: Any, b: Any) -> bool:
    """Return True if two trees have the same kind of content: types, dtypes and dimensions, not values or sizes."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return bool(a.dtype == b.dtype and a.dim() == b.dim())
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.ndim == b.ndim)
    if isinstance(a, Image.Image):
        return bool(a.mode == b.mode)
    parts_a = None if is_primitive(a) else children(a)
    if parts_a is None or isinstance(a, list):
        return True
    parts_b = children(b) or []
    return len(parts_a) == len(parts_b) and all(
        similar(part_a, part_b) for (_, part_a), (_, part_b) in zip(parts_a, parts_b, strict=True)
    )


def _leaf_nbytes(leaf: Any) -> int:
    if is_shared_map(leaf):
        return 0
    if is_lazy_image(leaf) and isinstance(leaf.fp, io.BytesIO):
        return leaf.fp.getbuffer().nbytes
    if isinstance(leaf, torch.Tensor):
        return tensor_nbytes(leaf)
    if isinstance(leaf, np.ndarray):
        return int(leaf.nbytes)
    if isinstance(leaf, Image.Image):
        return leaf.width * leaf.height * (4 if leaf.mode in ("I", "F", "RGBA", "CMYK", "RGB") else 1)
    if is_primitive(leaf):
        return sys.getsizeof(leaf)
    held = look_inside(leaf)
    return sys.getsizeof(leaf) if held is None else held.nbytes


def nbytes(value: Any) -> int:
    """Estimate the memory of a tree in bytes, containers included; an object met twice counts once."""
    seen: set[int] = set()
    total = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if is_primitive(item):
            total += sys.getsizeof(item)
            continue
        if id(item) in seen:
            continue
        seen.add(id(item))
        parts = _parts(item)
        if parts is None:
            total += _leaf_nbytes(item)
        else:
            total += sys.getsizeof(item)
            stack.extend(parts)
    return total


def is_lazy_image(leaf: Any) -> bool:
    """Return True if a leaf is an image that has been opened but not decoded."""
    return isinstance(leaf, ImageFile.ImageFile) and bool(getattr(leaf, "tile", None))


def is_mapped(leaf: Any) -> bool:
    """Return True if a leaf is an array whose data lies in a file that is mapped into memory."""
    base = leaf
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(leaf, np.ndarray) and isinstance(base, mmap.mmap)


def is_shared_map(leaf: Any) -> bool:
    """Return True if a leaf is such an array and read-only, so that it needs no copy."""
    return is_mapped(leaf) and not leaf.flags.writeable


def name_lazy(leaf: Any) -> str | None:
    """Name what a leaf is, if it is read or decoded only when it is used."""
    if is_lazy_image(leaf):
        return "an image that is opened and not decoded (PIL)"
    if is_mapped(leaf):
        return "an array in a memory-mapped file (NumPy)"
    package = type(leaf).__module__.partition(".")[0]
    return f"{package}.{type(leaf).__name__}" if package in _LAZY_PACKAGES else None


def reopen(image: Any) -> Any | None:
    """Return an image of the same file that has not been decoded either; None if that cannot be done.

    The bytes of the file are kept in memory, so that no descriptor is; only the decoding is left to do.
    """
    try:
        content = _content(image)
        if content is None or image.tell():
            return None
        fresh = Image.open(io.BytesIO(content))
        same = type(fresh) is type(image) and fresh.mode == image.mode and fresh.size == image.size
        if not same or fresh.tile != image.tile:  # such as after `draft`
            return None
        fresh.filename = image.filename
    except Exception:  # noqa: BLE001 - any file may have gone
        return None
    return fresh


def _content(image: Any) -> bytes | None:
    file = image.fp
    if isinstance(file, io.BytesIO):
        return file.getvalue()
    path = image.filename or getattr(file, "name", None)
    return Path(path).read_bytes() if isinstance(path, str) and path else None
