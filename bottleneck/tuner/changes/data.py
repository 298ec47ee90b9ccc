"""Changes to the use of the dataset: fetch whole batches by one call, and keep pixels as bytes until the device."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, Subset, default_collate, default_convert

from bottleneck.job.loader_args import is_default_collate
from bottleneck.job.pipeline import Pipeline
from bottleneck.loader import trees
from bottleneck.loader.calls import RngState, seed_generators
from bottleneck.loader.user_code import fetches_batches
from bottleneck.measure.keep.process import keep_random
from bottleneck.tuner.change import Change, Context
from bottleneck.tuner.changes.payload import after_the_move
from bottleneck.tuner.changes.step import NOT_THE_LOADERS, STREAM

_MAX_COMPARED = 4
"""Number of samples that are compared."""
_OF_EPOCH = re.compile(r"(?<!per)_epoch(_begin|_start|_end)?$|^epoch$")

# --- the user's dataset, which stays unchanged --------------------------------------------------------------


def inside_subsets(dataset: Any) -> Any:
    """Return the dataset inside subsets and wrappers."""
    while isinstance(dataset, Subset | Around):
        dataset = dataset.dataset
    return dataset


class Around(Dataset[Any]):
    """Wraps the user's dataset, to which it passes all other attributes."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)


def _with_changed_inside(dataset: Any, change: Callable[[Any], None]) -> Any:
    """Return a changed shallow copy of a dataset and of its wrappers."""
    changed = copy.copy(dataset)
    if isinstance(changed, Subset | Around):
        changed.dataset = _with_changed_inside(changed.dataset, change)
    else:
        change(changed)
    return changed


def copied(dataset: Any) -> Any:
    """Return a copy of a dataset and its containers, which keeps opened files and caches out of the original."""

    def change(inside: Any) -> None:
        held = vars(inside)
        held.update({name: copy.copy(each) for name, each in held.items() if type(each) in (dict, list, set)})

    return _with_changed_inside(dataset, change)


def epoch_of(held: Any) -> str:
    """Return the name of what the job may set for each epoch, such as `set_epoch`; empty if there is none."""
    inside = inside_subsets(held)
    return next((name for name in dir(inside) if _OF_EPOCH.search(name)), "")


def spread_over(dataset: Any, count: int = _MAX_COMPARED) -> list[int]:
    """Return indices from all over a dataset, of the samples that are compared."""
    return [at * len(dataset) // count for at in range(min(count, len(dataset)))]


def seeded(seed: int, function: Callable[[Any], Any], argument: Any) -> Any:
    """Return the result of a function with random numbers from a seed, and restore the generators."""
    restores = keep_random(torch.device("cpu"))
    try:
        seed_generators(seed)
        return function(argument)
    finally:
        for _, restore in restores:
            restore()


# --- whole batches by one call ------------------------------------------------------------------------------

_SAMPLES = 8
"""Number of samples fetched in both ways and compared; fewer random samples could be equal by chance."""


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
        return "the loader has its own collate_fn, for single samples"
    return None if _gives_same_batch(dataset) else "the dataset does not return a batch for a list of indices"


def _gives_same_batch(dataset: Any) -> bool:
    try:
        inside = inside_subsets(copied(dataset))
        indices = [at * len(inside) // _SAMPLES for at in reversed(range(_SAMPLES))]
        one_by_one = seeded(0, lambda each: default_collate([inside[index] for index in each]), indices)
        at_once: Any = default_convert(seeded(0, inside.__getitem__, indices))  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001 - the user's dataset may not support lists
        return False
    return trees.equal(one_by_one, at_once)


def _in_whole_batches(pipeline: Pipeline) -> Pipeline:
    def change(dataset: Any) -> None:
        dataset.__getitems__ = dataset.__getitem__

    return pipeline.replace(dataset=_with_changed_inside(pipeline.dataset, change), collate_fn=default_convert)


# --- pixels as bytes until the device: the end of a torchvision `Compose`, done there ------------------------

_SCALING = ("ToTensor", "ToDtype", "ConvertImageDtype")
"""Transforms of torchvision that convert bytes to floats from 0 to 1."""
_AFTER = ("Normalize", "ToPureTensor")
"""Transforms that may follow, and can be applied on the device."""
_TOLERANCE = 1e-4
_IMAGE_DIMENSIONS = 3


@dataclass(frozen=True)
class Tail:
    """A transform, cut where pixels become floats."""

    head: tuple[Any, ...]
    """Transforms that stay in the workers; their output has bytes as pixels."""
    normalizing: tuple[tuple[Sequence[float], Sequence[float]], ...]
    """Mean and standard deviation of each normalization, by channel."""

    def cut(self, transform: Any) -> Any:
        """Return a transform that ends while pixels are bytes."""
        return type(transform)(list(self.head))


def split(transform: Any) -> Tail | None:
    """Cut a torchvision `Compose`; return None for anything else."""
    if type(transform).__name__ != "Compose" or not is_torchvisions(transform):
        return None
    steps = list(transform.transforms)
    kinds = [type(step).__name__ if is_torchvisions(step) else "" for step in steps]
    at = next((at for at, kind in enumerate(kinds) if kind in _SCALING), None)
    if at is None or not _makes_floats(steps[at]) or any(kind not in _AFTER for kind in kinds[at + 1 :]):
        return None
    from torchvision.transforms import PILToTensor

    head = [*steps[:at], *([PILToTensor()] if kinds[at] == "ToTensor" else [])]  # the other kinds take a tensor
    normalizing = [(step.mean, step.std) for step, kind in zip(steps, kinds, strict=True) if kind == "Normalize"]
    return Tail(tuple(head), tuple(normalizing))


def is_torchvisions(step: Any) -> bool:
    """Return True if a transform is defined by torchvision."""
    return type(step).__module__.startswith("torchvision.transforms")


def _makes_floats(step: Any) -> bool:
    if type(step).__name__ == "ToDtype":
        return step.dtype is torch.float32 and bool(step.scale)
    return type(step).__name__ == "ToTensor" or step.dtype is torch.float32


def _converter(tail: Tail, dimensions: int) -> Callable[[Any], Any]:
    """Return a function that converts images of bytes, of shape (..., channels, height, width), to floats in place."""

    @cache  # copying the constants for each batch would make the host wait for the device
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


def with_transform(dataset: Any, make: Callable[[Any], Any]) -> Any:
    """Return a shallow copy of a dataset and its wrappers with another transform, made from the present one."""

    def change(changed: Any) -> None:
        made = make(changed.transform)
        both = getattr(changed, "transforms", None)  # torchvision's own datasets keep the transform twice
        if both is not None and getattr(both, "transform", None) is changed.transform:
            changed.transforms = copy.copy(both)
            changed.transforms.transform = made
        changed.transform = made

    return _with_changed_inside(dataset, change)


def _bytes_until_device(pipeline: Pipeline) -> Pipeline:
    tail = split(inside_subsets(pipeline.dataset).transform)
    assert tail is not None  # checked by `_why_not_bytes`
    changed = pipeline.replace(dataset=with_transform(pipeline.dataset, tail.cut))
    return after_the_move(changed, partial(trees.map_leaves, _converter(tail, _IMAGE_DIMENSIONS + 1)))


def _why_not_bytes(here: Context) -> str | None:
    dataset = here.pipeline.dataset
    if isinstance(dataset, IterableDataset):
        return STREAM
    tail = split(getattr(inside_subsets(dataset), "transform", None))
    if tail is None:
        return "the dataset has no `transform` of torchvision that ends in ToTensor or ToDtype, and Normalize"
    return None if gives_same_pixels(dataset, tail) else "the pixels may not be the same: the dataset does more"


def gives_same_pixels(dataset: Any, tail: Tail) -> bool:
    """Return True if samples are equal when floats are made later, and nothing after that is random."""
    ended: list[RngState] = []

    def noting(transform: Any) -> Callable[[Any], Any]:
        def call(given: Any) -> Any:
            made = transform(given)
            ended.append(RngState.capture())
            return made

        return call

    def is_same(index: int) -> bool:
        sample, end = seeded(index, lambda at: (given[at], RngState.capture()), index)
        other = trees.map_leaves(_converter(tail, _IMAGE_DIMENSIONS), seeded(index, changed.__getitem__, index))
        pairs = list(zip(trees.leaves(sample), trees.leaves(other), strict=True))
        has_image = any(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf, _ in pairs)
        # Rare changes of pixels would not be detected.
        return has_image and end.is_same(ended[-1]) and all(_is_close(leaf, made) for leaf, made in pairs)

    try:
        given, changed = (with_transform(copied(dataset), make) for make in (noting, tail.cut))
        return all(map(is_same, spread_over(dataset)))
    except Exception:  # noqa: BLE001 - the user's dataset may not expect bytes
        return False


def _is_close(leaf: Any, made: Any) -> bool:
    if not isinstance(leaf, torch.Tensor):
        return type(leaf) is type(made)
    is_like = isinstance(made, torch.Tensor) and leaf.dtype == made.dtype and leaf.shape == made.shape
    return is_like and torch.allclose(leaf, made, atol=_TOLERANCE)


CHANGES = (
    Change(
        "whole_batches",
        _in_whole_batches,
        alters="nothing",
        input_only=True,
        line="def __getitems__(self, indices): return self[indices]  # in the dataset: a whole batch\n"
        "DataLoader(..., collate_fn=torch.utils.data.default_convert)",
        advice=("fetch-in-batches",),
        why_not=_why_not_whole_batches,
        source="https://docs.pytorch.org/docs/stable/data.html",
    ),
    Change(
        "uint8_images",
        _bytes_until_device,
        on="payload",
        alters="nothing",
        line="# in the transform: PILToTensor() for ToTensor(), and no Normalize; after the copy:\n"
        "images = normalize(images.float().div_(255))",
        advice=("uint8-until-device", "smaller-payload"),
        why_not=_why_not_bytes,
        source="https://docs.pytorch.org/vision/stable/transforms.html",
    ),
)
