"""Pixels that stay bytes until they are on the device: the end of a torchvision `Compose`, done there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch.utils.data import IterableDataset

from bottleneck.job.pipeline import Pipeline
from bottleneck.loader import trees
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.datasets import inside_subsets, with_changed_inside, with_the_same_random
from bottleneck.tuning.travel import after_the_move

_SCALING = ("ToTensor", "ToDtype", "ConvertImageDtype")
"""Transforms of torchvision's that make floats from 0 to 1 of bytes."""
_AFTER = ("Normalize", "ToPureTensor")
"""What may follow them, and be done on the device as well."""
_TOLERANCE = 1e-4
_IMAGE_DIMENSIONS = 3


@dataclass(frozen=True)
class _Tail:
    """The end of a transform, from where pixels are floats."""

    head: tuple[Any, ...]
    """What stays in the workers; the pixels that it gives are bytes."""
    normalizing: tuple[tuple[Sequence[float], Sequence[float]], ...]
    """Mean and standard deviation of each normalization, by channel."""


def _split(transform: Any) -> _Tail | None:
    """The end of a torchvision `Compose`, where it is what pixels become floats by; None of anything else."""
    if type(transform).__name__ != "Compose" or not type(transform).__module__.startswith("torchvision.transforms"):
        return None
    steps = list(transform.transforms)
    kinds = [type(step).__name__ if _is_torchvisions(step) else "" for step in steps]
    at = next((at for at, kind in enumerate(kinds) if kind in _SCALING), None)
    if at is None or not _makes_floats(steps[at]) or any(kind not in _AFTER for kind in kinds[at + 1 :]):
        return None
    head = [*steps[:at], *_as_bytes(kinds[at])]
    normalizing = [(step.mean, step.std) for step, kind in zip(steps, kinds, strict=True) if kind == "Normalize"]
    return _Tail(tuple(head), tuple(normalizing))


def _is_torchvisions(step: Any) -> bool:
    return type(step).__module__.startswith("torchvision.transforms")


def _makes_floats(step: Any) -> bool:
    if type(step).__name__ == "ToDtype":
        return step.dtype is torch.float32 and bool(step.scale)
    return type(step).__name__ == "ToTensor" or step.dtype is torch.float32


def _as_bytes(kind: str) -> list[Any]:
    """What takes the place of the scaling transform: only `ToTensor` is also what makes a tensor."""
    from torchvision.transforms import PILToTensor

    return [PILToTensor()] if kind == "ToTensor" else []


def _converter(tail: _Tail, dimensions: int) -> Callable[[Any], Any]:
    """What makes floats of images that are bytes, of shape (..., channels, height, width), where they are."""

    @cache  # to copy the constants for each batch would make the host wait for the device
    def constants(device: torch.device) -> list[list[torch.Tensor]]:
        return [[torch.as_tensor(each, device=device).view(-1, 1, 1) for each in pair] for pair in tail.normalizing]

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype is not torch.uint8 or leaf.dim() != dimensions:
            return leaf
        image = leaf.float().div_(255)
        for means, stds in constants(image.device):
            image = image.sub_(means).div_(stds)
        return image

    return convert


def _with_transform(dataset: Any, transform: Any) -> Any:
    """A shallow copy of the dataset, and of the subsets around it, that has another transform."""

    def change(changed: Any) -> None:
        both = getattr(changed, "transforms", None)  # as torchvision's own datasets have it beside
        if both is not None and getattr(both, "transform", None) is changed.transform:
            changed.transforms = copy.copy(both)
            changed.transforms.transform = transform
        changed.transform = transform

    return with_changed_inside(dataset, change)


def _bytes_until_device(pipeline: Pipeline) -> Pipeline:
    transform = inside_subsets(pipeline.dataset).transform
    tail = _split(transform)
    assert tail is not None  # as `_why_not` has seen
    bytewise = type(transform)(list(tail.head))
    changed = pipeline.replace(dataset=_with_transform(pipeline.dataset, bytewise))
    return after_the_move(changed, partial(trees.map_leaves, _converter(tail, _IMAGE_DIMENSIONS + 1)))


def _why_not(here: Here) -> str | None:
    dataset = here.pipeline.dataset
    if isinstance(dataset, IterableDataset):
        return "the dataset is a stream"
    tail = _split(getattr(inside_subsets(dataset), "transform", None))
    if tail is None:
        return "the dataset has no `transform` of torchvision's that ends in ToTensor or ToDtype, and Normalize"
    return None if _is_the_same(here.pipeline, tail) else "the pixels would not be the same: the dataset does more"


def _is_the_same(pipeline: Pipeline, tail: _Tail) -> bool:
    """Whether a sample is the same when its floats are made afterwards, with the same random numbers."""
    changed = _with_transform(pipeline.dataset, type(inside_subsets(pipeline.dataset).transform)(list(tail.head)))
    convert = _converter(tail, _IMAGE_DIMENSIONS)
    try:
        sample, other = with_the_same_random(lambda: pipeline.dataset[0], lambda: changed[0])
        other = trees.map_leaves(convert, other)
    except Exception:  # noqa: BLE001 - the user's dataset, on pixels that it does not expect
        return False
    pairs = list(zip(trees.leaves(sample), trees.leaves(other), strict=False))
    images = [a for a, _ in pairs if isinstance(a, torch.Tensor) and a.is_floating_point()]
    return bool(images) and all(map(_alike, *zip(*pairs, strict=True)))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        same_kind = isinstance(other, torch.Tensor) and one.dtype == other.dtype and one.shape == other.shape
        return same_kind and torch.allclose(one, other, atol=_TOLERANCE)
    return type(one) is type(other)


CHANGES = (
    Change(
        "uint8_images", _bytes_until_device, on="payload", alters="nothing",
        line="# in the transform: PILToTensor() for ToTensor(), and no Normalize; after the copy:\n"
        "images = normalize(images.float().div_(255))",
        advice=("uint8-until-device", "smaller-copy", "smaller-payload", "smaller-handoff"), why_not=_why_not,
        source="https://docs.pytorch.org/vision/stable/transforms.html",
    ),
)  # fmt: skip
