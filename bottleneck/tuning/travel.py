"""Tensors that travel smaller: what a worker makes of a batch, and what is made of that again on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bottleneck.job import containers
from bottleneck.job.loader_args import is_default_collate
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import move_to_device
from bottleneck.loader import trees
from bottleneck.tuning.change import Here

ByPath = Callable[[str, torch.Tensor], Any]
"""Of the path of a tensor in its batch, such as `[0]`, and the tensor."""


def map_tensors(function: ByPath, value: Any, path: str = "") -> Any:
    """Rebuild a batch with a function applied to each tensor; paths are those of `Payload.tensors`."""
    if isinstance(value, torch.Tensor):
        return function(path, value)
    parts = containers.children(value)
    if parts is None:
        return value
    keyed = isinstance(value, dict)
    steps = [f"[{key!r}]" if isinstance(key, int) or keyed else f".{key}" for key, _ in parts]
    changed = [(key, map_tensors(function, part, path + at)) for at, (key, part) in zip(steps, parts, strict=True)]
    return containers.rebuild(value, changed)


class Shrinking:
    """Collates, and then makes tensors smaller; goes to workers, whichever way they start."""

    def __init__(self, collate: Callable[[Any], Any], shrink: ByPath) -> None:
        self._collate, self._shrink = collate, shrink

    def __call__(self, samples: Any) -> Any:
        return map_tensors(self._shrink, self._collate(samples))


def after_the_move(pipeline: Pipeline, restore: Callable[[Any], Any]) -> Pipeline:
    """The pipeline with something done to each batch once it is on the device."""
    move = move_of(pipeline)
    return pipeline.replace(to_device=lambda batch, device: restore(move(batch, device)))


def move_of(pipeline: Pipeline) -> Callable[[Any, Any], Any]:
    """What moves its batches to the device: its own function, or ours."""
    return _move if pipeline.to_device is None else pipeline.to_device


def _move(batch: Any, device: torch.device) -> Any:
    # As the job does it: what a copy without waiting gains is no gain of a smaller batch.
    first = next((leaf for leaf in trees.leaves(batch) if isinstance(leaf, torch.Tensor)), None)
    return move_to_device(batch, device, non_blocking=first is not None and first.is_pinned())


def smaller_on_the_way(pipeline: Pipeline, shrink: ByPath, restore: ByPath) -> Pipeline:
    """The pipeline whose batches are shrunk where they are collated, and restored on the device.

    Args:
        pipeline: The job.
        shrink: Makes a tensor smaller, or leaves it; an object that can be pickled.
        restore: Makes of it what the train step expects.
    """
    collate = pipeline.make_loader().collate_fn
    restored = after_the_move(pipeline, lambda batch: map_tensors(restore, batch))
    return restored.replace(collate_fn=Shrinking(collate, shrink))


def no_way_to_save(here: Here) -> str | None:
    """Why nothing is saved on the way of a batch; None where it is copied to a device, or handed over by workers."""
    if here.device.type == "cpu" and not here.loader.num_workers:
        return "batches travel nowhere: there are no workers, and the job trains on the CPU"
    return None


def own_transfer(here: Here) -> str | None:
    """Why what the train step gets is not known; None where we move the batches ourselves."""
    return "the job moves its batches itself: change it in its to_device" if here.given.to_device is not None else None


def collates_plainly(pipeline: Pipeline) -> bool:
    """Whether batches are collated by PyTorch's own function."""
    return is_default_collate(pipeline.make_loader().collate_fn)
