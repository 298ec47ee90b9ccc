"""Changes to the payload: batches that travel in fewer bytes, or without what the train step never reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bottleneck.job import containers
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import move_to_device
from bottleneck.loader import trees
from bottleneck.results.tuning import Outcome
from bottleneck.tuner.change import Change, Context
from bottleneck.tuner.changes.step import low_precision

_LARGE_SHARE = 0.1
"""Minimum share of a batch for a tensor, or for its savings; small targets stay exact."""
_UNREAD_SHARE = 0.02
"""Minimum share of a batch that can be left out."""
_MIN_PICKLING_S = 1e-4
"""Minimum time per batch for pickling and unpickling objects that are left out."""


# --- encodings of tensors at some paths of a batch, such as `[0]` ---------------------------------------------

# They are applied while collating, in workers that get them as pickles, and reversed on the device.


@dataclass(frozen=True)
class _ByTensor:
    """An encoding of each tensor at some paths."""

    paths: tuple[str, ...]

    def encode(self, batch: Any) -> Any:
        return _map_at(self.paths, self.shrink, batch)

    def decode(self, batch: Any) -> Any:
        return _map_at(self.paths, self.restore, batch)

    def shrink(self, tensor: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def restore(self, tensor: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class LowerPrecision(_ByTensor):
    """Floats cast to a smaller type, and back, because the step may treat another type differently."""

    given: str
    to: str

    def __str__(self) -> str:
        return self.to

    def shrink(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(getattr(torch, self.to)) if tensor.dtype is getattr(torch, self.given) else tensor

    def restore(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(getattr(torch, self.given)) if tensor.dtype is getattr(torch, self.to) else tensor


@dataclass(frozen=True)
class OneHotRows(_ByTensor):
    """One-hot rows as indices; a tensor with any other row is not encoded, so that the step gets the same numbers."""

    dimensions: int
    classes: int
    dtype: str

    def __str__(self) -> str:
        return f"batch{self.paths[0]}"

    def shrink(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() != self.dimensions or tensor.shape[-1] != self.classes:
            return tensor
        ones = tensor == 1
        is_one_hot = bool((ones.sum(-1) == 1).all()) and bool((ones | (tensor == 0)).all())
        return ones.int().argmax(-1).int() if is_one_hot else tensor

    def restore(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() != self.dimensions - 1:
            return tensor
        zeros = torch.zeros((*tensor.shape, self.classes), dtype=getattr(torch, self.dtype), device=tensor.device)
        return zeros.scatter_(-1, tensor.long().unsqueeze(-1), 1)


@dataclass(frozen=True)
class Unread(_ByTensor):
    """Parts that the step did not read: tensors become empty ones that carry their shape, objects become None.

    Attributes:
        places: Places of the objects, as in `Payload.pickled`.
    """

    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"batch{path}" for path in (*self.paths, *self.places))

    def encode(self, batch: Any) -> Any:
        return _without_objects(self.places, super().encode(batch))

    def shrink(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.new_empty((0, *tensor.shape))

    def restore(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.new_zeros(()).expand(tensor.shape[1:]) if not tensor.numel() else tensor


class _ShrinkingCollate:
    """Collates, then encodes; can be pickled for workers of any start method."""

    def __init__(self, collate: Callable[[Any], Any], encoding: _ByTensor) -> None:
        self._collate = collate
        self._encoding = encoding

    def __call__(self, samples: Any) -> Any:
        return self._encoding.encode(self._collate(samples))


def _map_at(paths: Sequence[str], function: Callable[[Any], Any], value: Any, path: str = "") -> Any:
    """Rebuild a batch with a function applied to the tensors at some paths, as in `Payload.tensors`."""
    if isinstance(value, torch.Tensor):
        return function(value) if path in paths else value
    return containers.map_parts(value, path, partial(_map_at, paths, function))


def _without_objects(places: Sequence[str], value: Any, path: str = "") -> Any:
    """Rebuild a batch with None for each object at some places, but with the containers around them."""
    if any(re.fullmatch(re.escape(place).replace(re.escape("[*]"), r"\[\d+\]"), path) for place in places):
        return trees.map_leaves(lambda leaf: leaf if isinstance(leaf, torch.Tensor) else None, value)
    return containers.map_parts(value, path, partial(_without_objects, places))


def _encoded(pipeline: Pipeline, value: _ByTensor) -> Pipeline:
    """Return the pipeline with batches encoded while collating, and decoded on the device."""
    decoded = after_the_move(pipeline, value.decode) if value.paths else pipeline
    return decoded.replace(collate_fn=_ShrinkingCollate(pipeline.make_loader().collate_fn, value))


def after_the_move(pipeline: Pipeline, restore: Callable[[Any], Any]) -> Pipeline:
    """Return the pipeline with a function applied to each batch on the device."""
    move = pipeline.to_device or _move
    return pipeline.replace(to_device=lambda batch, device: restore(move(batch, device)))


def _move(batch: Any, device: torch.device) -> Any:
    # As the job does it, because an asynchronous copy is another change. Empty tensors are never pinned.
    tensors = (leaf for leaf in trees.leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.numel())
    first = next(tensors, None)
    return move_to_device(batch, device, non_blocking=first is not None and first.is_pinned())


def _travels_nowhere(here: Context) -> str | None:
    if here.device.type == "cpu" and not here.loader.num_workers:
        return "batches do not travel: there are no workers, and the job trains on the CPU"
    return None


def _own_transfer(here: Context) -> str | None:
    return "the job moves its batches itself: change it in its to_device" if here.given.to_device is not None else None


def _casts(here: Context) -> list[LowerPrecision]:
    low = str(low_precision(here)).removeprefix("torch.")
    types = [("float64", "float32"), *([("float32", low)] if low != "None" else [])]
    minimum = _LARGE_SHARE * (here.payload.bytes or 0.0)
    large = [seen for seen in here.payload.tensors if (seen.bytes or 0.0) > minimum]
    found = [
        LowerPrecision(tuple(seen.path or "" for seen in large if seen.dtype == given), given, to)
        for given, to in types
    ]
    return [cast for cast in found if cast.paths]


def _why_not_floats(here: Context) -> str | None:
    if (why := _travels_nowhere(here)) is not None:
        return why
    if not here.payload.tensors:
        return "the contents of a batch are unknown"
    none = "no large tensor of a batch is float64, nor float32 for a step that computes in 16 bits"
    return None if _casts(here) else none


def _one_hot(here: Context) -> list[OneHotRows]:
    minimum = _LARGE_SHARE * (here.payload.bytes or 0.0)
    savings = [saving for saving in here.payload.savings if saving.id == "one-hot"]
    paths = {saving.path for saving in savings if (saving.bytes_saved or 0.0) > minimum}
    return [
        OneHotRows((seen.path or "",), len(seen.shape), seen.shape[-1], seen.dtype or "")
        for seen in here.payload.tensors
        if seen.path in paths
    ]


def _why_not_one_hot(here: Context) -> str | None:
    if (why := _travels_nowhere(here) or _own_transfer(here)) is not None:
        return why
    return None if _one_hot(here) else "no large tensor of a batch is one-hot along its last dimension"


def _unread(here: Context) -> list[Unread]:
    paths = () if _why_not_unread_tensors(here) else here.payload.unread or ()
    tensors = tuple(str(seen.path) for seen in here.payload.tensors if seen.path in paths)
    return [Unread(tensors, _unread_objects(here))]


def _unread_objects(here: Context) -> tuple[str, ...]:
    """Return the places of unread objects that are costly to pickle."""
    unread = [seen for seen in here.payload.pickled if seen.unread]
    return tuple(
        seen.path or "" for seen in unread if (seen.pickle_s or 0.0) + (seen.unpickle_s or 0.0) >= _MIN_PICKLING_S
    )


def _why_not_unread(here: Context) -> str | None:
    return _travels_nowhere(here) or (None if _unread_objects(here) else _why_not_unread_tensors(here))


def _why_not_unread_tensors(here: Context) -> str | None:
    if (why := _own_transfer(here)) is not None:
        return why
    total, unread = here.payload.bytes or 0.0, here.payload.unread_bytes or 0.0
    if here.payload.unread is None:
        return "it is unknown which parts of a batch the train step reads"
    if unread >= total:
        return "the train step reads nothing of a batch, which replaces another one"
    if unread < _UNREAD_SHARE * total:
        return "the train step reads all of a batch" if not unread else "the unread part of a batch is small"
    return None


def _first_of(
    find: Callable[[Context], Sequence[Any]], here: Context, judged: Mapping[Any, Outcome]
) -> _ByTensor | None:
    return next((encoding for encoding in find(here) if encoding not in judged), None)


CHANGES = (
    Change(
        "leave_out",
        _encoded,
        on="payload",
        alters="nothing",
        line="# leave {value} out of what __getitem__ and collate_fn return",
        advice=("unused-columns", "pickled-objects"),
        why_not=_why_not_unread,
        next_value=partial(_first_of, _unread),
        source="https://huggingface.co/docs/datasets/process#remove",
    ),
    Change(
        "one_hot",
        _encoded,
        on="payload",
        alters="nothing",
        line="# let __getitem__ return indices for {value}; on the device:\n"
        "rows = torch.nn.functional.one_hot({value}.long(), classes)",
        advice=("smaller-payload",),
        why_not=_why_not_one_hot,
        next_value=partial(_first_of, _one_hot),
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.one_hot.html",
    ),
    Change(
        "smaller_floats",
        _encoded,
        on="payload",
        line="# in collate_fn, for the large tensors:\ntensor = tensor.to(torch.{value})",
        advice=("smaller-payload",),
        why_not=_why_not_floats,
        next_value=partial(_first_of, _casts),
        source="https://docs.pytorch.org/docs/stable/amp.html",
    ),
)
