"""Changes to how the dataset is used: whole batches by one call, and pixels that stay bytes until the device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, Subset, default_collate, default_convert

from bottleneck.job.loader_args import is_default_collate
from bottleneck.job.pipeline import Pipeline
from bottleneck.loader import trees
from bottleneck.loader.user_code import fetches_batches
from bottleneck.measure.keep.process import keep_random
from bottleneck.tuner.change import Change, Context
from bottleneck.tuner.changes.payload import after_the_move
from bottleneck.tuner.changes.step import NOT_THE_LOADERS

STREAM = "the dataset is a stream"

# --- the user's dataset, which is left alone ----------------------------------------------------------------


def inside_subsets(dataset: Any) -> Any:
    """The dataset inside of subsets, and of what stands around it."""
    while isinstance(dataset, Subset | Around):
        dataset = dataset.dataset
    return dataset


class Around(Dataset[Any]):
    """Stands around the user's dataset, which answers for all else."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)


def _with_changed_inside(dataset: Any, change: Callable[[Any], None]) -> Any:
    """A shallow copy of a dataset, and of what is around it, to which something is done."""
    changed = copy.copy(dataset)
    if isinstance(changed, Subset | Around):
        changed.dataset = _with_changed_inside(changed.dataset, change)
    else:
        change(changed)
    return changed


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Put the random numbers back at the end."""
    restores = keep_random(torch.device("cpu"))
    try:
        yield
    finally:
        for _, restore in restores:
            restore()


def with_same_random(*calls: Callable[[], Any]) -> list[Any]:
    """What each call gives with the random numbers as they are now, which are put back."""
    given = []
    for call in calls:
        with random_numbers_kept():
            given.append(call())
    return given


# --- whole batches by one call ------------------------------------------------------------------------------

_SAMPLES = 8
"""Fetched in both ways and compared; with fewer, random samples could be equal by chance."""


class _FetchesBatches:
    """The `__getitems__` of a dataset that takes lists of indices; goes to workers by any start method."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __call__(self, indices: list[int]) -> Any:
        batch = default_convert(self._dataset[indices])  # type: ignore[no-untyped-call]  # torch's
        return list(batch) if type(batch) is tuple else batch  # as `default_collate` gives it


def _is_collated(batch: Any) -> Any:
    return batch


def _why_not_whole_batches(here: Context) -> str | None:
    dataset = here.pipeline.dataset
    if isinstance(dataset, IterableDataset):
        return STREAM
    if fetches_batches(dataset):
        return "the dataset has a __getitems__, which the loader calls already"
    if isinstance(dataset, Around):
        return "its samples come from memory one by one"
    if here.loader.batch_size is None:
        return NOT_THE_LOADERS
    if not is_default_collate(here.loader.collate_fn):
        return "the loader has a collate_fn of its own, for samples one by one"
    return None if _gives_same_batch(dataset) else "the dataset gives no batch for a list of indices"


def _gives_same_batch(dataset: Any) -> bool:
    inside = inside_subsets(dataset)
    try:
        indices = [at * len(inside) // _SAMPLES for at in reversed(range(_SAMPLES))]
        one_by_one, at_once = with_same_random(
            lambda: default_collate([inside[index] for index in indices]), lambda: _FetchesBatches(inside)(indices)
        )
    except Exception:  # noqa: BLE001 - the user's dataset, asked for what it may not know
        return False
    return trees.equal(one_by_one, at_once)


def _in_whole_batches(pipeline: Pipeline) -> Pipeline:
    def change(dataset: Any) -> None:
        dataset.__getitems__ = _FetchesBatches(inside_subsets(pipeline.dataset))

    return pipeline.replace(dataset=_with_changed_inside(pipeline.dataset, change), collate_fn=_is_collated)


# --- pixels that stay bytes until the device: the end of a torchvision `Compose`, done there -----------------

_SCALING = ("ToTensor", "ToDtype", "ConvertImageDtype")
"""Transforms of torchvision that make floats from 0 to 1 of bytes."""
_AFTER = ("Normalize", "ToPureTensor")
"""What may follow them, and be done on the device as well."""
_TOLERANCE = 1e-4
_IMAGE_DIMENSIONS = 3


@dataclass(frozen=True)
class _Tail:
    """A transform, cut where pixels become floats."""

    head: tuple[Any, ...]
    """What stays in the workers; the pixels that it gives are bytes."""
    normalizing: tuple[tuple[Sequence[float], Sequence[float]], ...]
    """Mean and standard deviation of each normalization, by channel."""


def _split(transform: Any) -> _Tail | None:
    """Cut a torchvision `Compose`; None of anything else."""
    if type(transform).__name__ != "Compose" or not _is_torchvisions(transform):
        return None
    steps = list(transform.transforms)
    kinds = [type(step).__name__ if _is_torchvisions(step) else "" for step in steps]
    at = next((at for at, kind in enumerate(kinds) if kind in _SCALING), None)
    if at is None or not _makes_floats(steps[at]) or any(kind not in _AFTER for kind in kinds[at + 1 :]):
        return None
    from torchvision.transforms import PILToTensor

    head = [*steps[:at], *([PILToTensor()] if kinds[at] == "ToTensor" else [])]  # the others are given a tensor
    normalizing = [(step.mean, step.std) for step, kind in zip(steps, kinds, strict=True) if kind == "Normalize"]
    return _Tail(tuple(head), tuple(normalizing))


def _is_torchvisions(step: Any) -> bool:
    return type(step).__module__.startswith("torchvision.transforms")


def _makes_floats(step: Any) -> bool:
    if type(step).__name__ == "ToDtype":
        return step.dtype is torch.float32 and bool(step.scale)
    return type(step).__name__ == "ToTensor" or step.dtype is torch.float32


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


def _with_head(dataset: Any, tail: _Tail) -> Any:
    """A shallow copy of the dataset, and of the subsets around it, whose transform ends where pixels are bytes."""

    return with_transform(dataset, lambda transform: type(transform)(list(tail.head)))


def with_transform(dataset: Any, make: Callable[[Any], Any]) -> Any:
    """A shallow copy of the dataset, and of what is around it, with another transform, made of the present one."""

    def change(changed: Any) -> None:
        made = make(changed.transform)
        both = getattr(changed, "transforms", None)  # torchvision's own datasets have it twice
        if both is not None and getattr(both, "transform", None) is changed.transform:
            changed.transforms = copy.copy(both)
            changed.transforms.transform = made
        changed.transform = made

    return _with_changed_inside(dataset, change)


def _bytes_until_device(pipeline: Pipeline) -> Pipeline:
    tail = _split(inside_subsets(pipeline.dataset).transform)
    assert tail is not None  # as `_why_not_bytes` has seen
    changed = pipeline.replace(dataset=_with_head(pipeline.dataset, tail))
    return after_the_move(changed, partial(trees.map_leaves, _converter(tail, _IMAGE_DIMENSIONS + 1)))


def _why_not_bytes(here: Context) -> str | None:
    dataset = here.pipeline.dataset
    if isinstance(dataset, IterableDataset):
        return STREAM
    tail = _split(getattr(inside_subsets(dataset), "transform", None))
    if tail is None:
        return "the dataset has no `transform` of torchvision's that ends in ToTensor or ToDtype, and Normalize"
    return None if _gives_same_pixels(dataset, tail) else "the pixels would not be the same: the dataset does more"


def _gives_same_pixels(dataset: Any, tail: _Tail) -> bool:
    """Whether a sample is the same when its floats are made afterwards, with the same random numbers."""
    changed = _with_head(dataset, tail)
    try:
        sample, other = with_same_random(lambda: dataset[0], lambda: changed[0])
        other = trees.map_leaves(_converter(tail, _IMAGE_DIMENSIONS), other)
    except Exception:  # noqa: BLE001 - the user's dataset, on pixels that it does not expect
        return False
    pairs = list(zip(trees.leaves(sample), trees.leaves(other), strict=False))
    has_image = any(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf, _ in pairs)
    return has_image and all(_is_close(leaf, made) for leaf, made in pairs)


def _is_close(leaf: Any, made: Any) -> bool:
    if not isinstance(leaf, torch.Tensor):
        return type(leaf) is type(made)
    is_like = isinstance(made, torch.Tensor) and leaf.dtype == made.dtype and leaf.shape == made.shape
    return is_like and torch.allclose(leaf, made, atol=_TOLERANCE)


CHANGES = (
    Change(
        "whole_batches", _in_whole_batches, alters="nothing",
        line="DataLoader(dataset, sampler=BatchSampler(RandomSampler(dataset), batch_size, drop_last=False), "
        "batch_size=None)",
        advice=("fetch-in-batches",), why_not=_why_not_whole_batches,
        source="https://docs.pytorch.org/docs/stable/data.html",
    ),
    Change(
        "uint8_images", _bytes_until_device, on="payload", alters="nothing",
        line="# in the transform: PILToTensor() for ToTensor(), and no Normalize; after the copy:\n"
        "images = normalize(images.float().div_(255))",
        advice=("uint8-until-device", "smaller-payload"), why_not=_why_not_bytes,
        source="https://docs.pytorch.org/vision/stable/transforms.html",
    ),
)  # fmt: skip
