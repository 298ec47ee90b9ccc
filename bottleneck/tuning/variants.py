"""Variants of a job beside each other: which jobs can have them, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from bottleneck.errors import PipelineError, UsageError
from bottleneck.job.description import Pipeline
from bottleneck.job.train_step import FrameworkStep
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


class _PreparedOnce(FrameworkStep):
    """The step of a framework's loop, for several variants of one job: to prepare it again would wrap it twice."""

    def __init__(self, inner: FrameworkStep) -> None:
        super().__init__(inner.model)
        self._inner = inner
        self._run: Callable[[Any], Any] | None = None

    def prepare(self, optimizer: Any, device: torch.device) -> Callable[[Any], Any]:
        if self._run is None:
            self._run = self._inner.prepare(optimizer, device)
        return self._run


def preparing_once(pipeline: Pipeline) -> Pipeline:
    """The job with the step of a framework's loop prepared once for all variants."""
    step = pipeline.train_step
    return pipeline.replace(train_step=_PreparedOnce(step)) if isinstance(step, FrameworkStep) else pipeline
