"""Variants of a job beside each other: which jobs can have them, and what they share."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from bottleneck.errors import PipelineError, UsageError
from bottleneck.job.pipeline import Pipeline
from bottleneck.loader.switched_loader import can_skip_batches


def check_can_be_varied(pipeline: Pipeline) -> None:
    """Refuse a job of which no variants can run beside each other.

    Raises:
        PipelineError: Its loader is of a class with an iteration of its own, or it is one of several ranks.
    """
    from torch import distributed

    loader = pipeline.make_loader()
    if not can_skip_batches(loader):
        raise PipelineError(
            f"The loader is a {type(loader).__name__} with an __iter__ of its own, which cannot be varied.",
            "Describe the job with a plain DataLoader: Pipeline(dataset=dataset, batch_size=64, ...).",
        )
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise UsageError("A job of several ranks cannot be tuned.", "Tune it on one device, in a process of its own.")


def batches_of_epoch(loader: DataLoader[Any]) -> int | None:
    """How many batches an epoch has; None where it is not known."""
    if isinstance(loader.dataset, IterableDataset) or loader.batch_size is None:
        return None
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None
