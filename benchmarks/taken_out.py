"""Jobs of the bench with one stage taken out of them, as a user would who found a way to do it for free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset

from benchmarks.datasets import make_image
from benchmarks.work import wait


class CannotBeTakenOut(Exception):
    """A stage is no piece of code that something else could be put in the place of."""


class Made:
    """In the place of a stage: gives what the stage made of a first input, at no cost.

    Nothing in the bench changes what it is given, so that it need not be a copy.
    """

    def __init__(self, made: Any) -> None:
        self.made = made

    def __call__(self, *_given: Any) -> Any:
        return self.made


class MadeBatch(Made):
    """In the place of a collate function; a worker's batch has to be written into shared memory all the same."""

    def __call__(self, *_given: Any) -> Any:
        return in_shared_memory(self.made)


def in_shared_memory(batch: Any) -> Any:
    """Write those tensors of a batch into new shared memory that lie in some."""
    if isinstance(batch, torch.Tensor) and batch.is_shared():  # type: ignore[no-untyped-call]  # torch's own
        storage = torch.UntypedStorage._new_shared(batch.nbytes)  # type: ignore[no-untyped-call]  # torch's own
        return torch.empty(0, dtype=batch.dtype).set_(storage).view(batch.shape).copy_(batch)
    if isinstance(batch, list | tuple):
        return type(batch)([in_shared_memory(part) for part in batch])
    if isinstance(batch, dict):
        return {key: in_shared_memory(part) for key, part in batch.items()}
    return batch


class MadeSamples(Dataset[Any]):
    """In the place of a dataset: its first sample, always."""

    def __init__(self, sample: Any, length: int) -> None:
        self.sample, self.length = sample, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.sample


class InWorker:
    """Makes a replacement in the process that uses it first: a worker's replacement lies in its own memory."""

    def __init__(self, make: Callable[[], Callable[..., Any]]) -> None:
        self.make = make
        self.made: Callable[..., Any] | None = None

    def __call__(self, *given: Any) -> Any:
        if self.made is None:
            self.made = self.make()
        return self.made(*given)


def without(fields: dict[str, Any], stage: str) -> dict[str, Any]:
    """The fields of the same job with one stage taken out.

    Raises:
        CannotBeTakenOut: It is no stage that can be taken out of this job.
    """
    dataset = fields["dataset"]
    if stage == "copy" and "to_device" in fields:
        return {name: value for name, value in fields.items() if name != "to_device"}
    if stage == "collate" and "collate_fn" in fields and not hasattr(fields["collate_fn"], "pad"):
        collate, size = fields["collate_fn"], fields["batch_size"]
        return {**fields, "collate_fn": InWorker(lambda: MadeBatch(collate([dataset[index] for index in range(size)])))}
    if stage == "pad" and hasattr(fields.get("collate_fn"), "pad"):
        images = [dataset[index][0] for index in range(fields["batch_size"])]
        fields["collate_fn"].pad = Made(fields["collate_fn"].pad(images))
    elif stage == "load" and hasattr(dataset, "loader"):
        dataset.loader = Made(dataset.loader("image-0"))
        if hasattr(dataset, "finish_work"):
            dataset.finish_work = wait(0.0)
    elif stage == "augment" and hasattr(dataset, "transform"):
        dataset.transform = Made(dataset.transform(_given_to_transform(dataset)))
    elif stage in ("decode", "crop") and hasattr(dataset, stage):
        given = 0 if stage == "decode" else dataset.decode(0)
        setattr(dataset, stage, Made(getattr(dataset, stage)(given)))
    elif stage == "fetch":
        fields["dataset"] = MadeSamples(dataset[0], len(dataset))
    else:
        raise CannotBeTakenOut(f"{stage} cannot be taken out of {type(dataset).__name__}")
    return fields


def _given_to_transform(dataset: Any) -> Any:
    image = dataset.loader("image-0") if hasattr(dataset, "loader") else make_image("image-0")
    return {"image": image, "label": 0} if hasattr(dataset, "__getitems__") else image
