"""Containers of samples and batches: their contents, and copies with other contents.

Supported are mappings, lists and list-like objects, tuples, named tuples and dataclasses (also frozen ones). Objects
that move themselves to a device, such as graphs, can be inspected, but not rebuilt.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, MutableSequence
from typing import Any

import torch


def children(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the (key, child) pairs of a container, or None for anything else."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if isinstance(value, MutableSequence):
        holds_numbers_only = isinstance(value, bytearray) or hasattr(value, "typecode")
        return None if holds_numbers_only else list(enumerate(value))
    if is_dataclass_instance(value):
        names = (field.name for field in dataclasses.fields(value))
        return [(name, getattr(value, name)) for name in names if hasattr(value, name)]
    return None


def inside(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the (key, child) pairs of a container, or the attributes of an object that has a method `to`."""
    parts = children(value)
    if parts is not None or isinstance(value, (torch.Tensor, torch.nn.Module, type)):
        return parts
    held = getattr(value, "__dict__", None)
    if not isinstance(held, dict) or not callable(getattr(value, "to", None)):
        return None
    return [(name, part) for name, part in held.items() if not isinstance(part, type)]


def tensors(value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each tensor of a sample or a batch with its path, such as `[0]`, `["labels"]` or `.image`."""
    return _tensors(value, "", set())


def _tensors(value: Any, path: str, looked_into: set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    parts = None if id(value) in looked_into else steps(value)
    if parts and children(value) is None:
        looked_into.add(id(value))  # attributes may lead back
    for step, child in parts or ():
        yield from _tensors(child, f"{path}{step}", looked_into)


def steps(value: Any) -> list[tuple[str, Any]] | None:
    """Return what `inside` returns, with each key as it stands in a path: `[0]`, `["labels"]` or `.image`."""
    parts = inside(value)
    return None if parts is None else [(_step(value, key), child) for key, child in parts]


def _step(value: Any, key: Any) -> str:
    return f"[{key!r}]" if isinstance(key, int) or isinstance(value, dict) else f".{key}"


def map_parts(value: Any, path: str, function: Callable[[Any, str], Any]) -> Any:
    """Rebuild a container with a function applied to each part and its path; return other values unchanged."""
    parts = None if isinstance(value, torch.Tensor) else children(value)
    if parts is None:
        return value
    return rebuild(value, [(key, function(part, path + _step(value, key))) for key, part in parts])


def takes_anything(value: Any) -> bool:
    """Return True if a container stores any value unchanged; a TensorDict, for example, converts or refuses some."""
    if is_dataclass_instance(value):
        kind: Any = type(value)
        return kind.__setattr__ is object.__setattr__ or kind.__dataclass_params__.frozen
    return isinstance(value, (dict, UserDict, list, tuple))


def is_dataclass_instance(value: Any) -> bool:
    """Return True if a value is an instance of a dataclass, not the class."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def rebuild(value: Any, parts: list[tuple[Any, Any]]) -> Any:
    """Return a container of the same type with new (key, child) pairs, whose keys are those of `children`.

    Raises:
        TypeError: The type cannot be rebuilt from its parts.
    """
    kind = type(value)
    if kind is dict:
        return dict(parts)
    if kind is list:
        return [part for _, part in parts]
    if kind is tuple:
        return tuple(part for _, part in parts)
    if isinstance(value, Mapping):
        return _rebuild_mapping(value, parts)
    if isinstance(value, tuple):
        items = [part for _, part in parts]
        return value._make(items) if hasattr(value, "_make") else kind(items)
    clone = copy.copy(value)  # keeps other attributes, and does not run __post_init__ again
    for key, part in parts:
        if isinstance(value, MutableSequence):
            clone[key] = part
        else:
            object.__setattr__(clone, key, part)
    return clone


def _rebuild_mapping(value: Mapping[Any, Any], parts: list[tuple[Any, Any]]) -> Any:
    clone: Any = copy.copy(value)  # keeps a default factory and other attributes
    try:
        for key, part in parts:
            clone[key] = part
    except TypeError:  # an immutable mapping
        return type(value)(dict(parts))  # type: ignore[call-arg]  # most accept what dict accepts; else a TypeError
    return clone


_MAX_PARTS = 6
_MAX_DEPTH = 3


def describe_structure(value: Any, depth: int = 0) -> str:
    """Return the types, shapes and dtypes in a sample or a batch, such as '(float32 [3, 224, 224], int)'."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    parts = inside(value)
    if parts is None or depth >= _MAX_DEPTH:
        return "None" if value is None else type(value).__name__
    named = not isinstance(value, list | tuple)
    shown = []
    for key, part in parts[:_MAX_PARTS]:
        prefix = f"{key!s:.20}: " if named else ""
        shown.append(prefix + describe_structure(part, depth + 1))
    if len(parts) > _MAX_PARTS:
        shown.append(f"{len(parts) - _MAX_PARTS} more")
    if isinstance(value, Mapping):
        return f"{{{', '.join(shown)}}}"
    kind = "" if type(value) is tuple else type(value).__name__
    return f"{kind}({', '.join(shown)})"
