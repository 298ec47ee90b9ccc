"""The losses of a job before and after a change, on the same batches and from the same weights."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of
from bottleneck.loader import trees
from bottleneck.measure.job_on_device import JobOnDevice
from bottleneck.measure.preserve.preserved import preserved
from bottleneck.measure.training.losses import loss_in
from bottleneck.results.tuning import Losses

STEPS = 20
LONGEST_S = 5.0
"""What loading the batches may take, and training on them; where that is slow, there are fewer."""


def compare_losses(
    given: Pipeline, base: Pipeline, changed: Pipeline, clock: Callable[[], float] = time.perf_counter
) -> Losses | None:
    """Train on the same samples before and after a change, each time from the weights that the job has now.

    Args:
        given: The job as it is, whose state is put back.
        base: Before the change.
        changed: After it.
        clock: Seconds from any beginning.

    Returns:
        None where the samples cannot be chosen (a stream), are put into other batches, or there is no loss.
    """
    loaders = [pipeline.make_loader() for pipeline in (base, changed)]
    if any(isinstance(loader.dataset, IterableDataset) for loader in loaders) or not _batches_alike(*loaders):
        return None
    same = loaders[0].dataset is loaders[1].dataset and loaders[0].collate_fn is loaders[1].collate_fn
    batches: list[list[Any]] = []
    deadline_s = clock() + LONGEST_S
    for first in range(STEPS):
        if batches and clock() > deadline_s:
            break
        made = _batch(loaders[0], first)
        batches.append([made, made if same else _batch(loaders[1], first)])
    deadline_s = clock() + LONGEST_S
    before = _losses(given, base, loaders[0], [one for one, _ in batches], lambda: clock() > deadline_s)
    after = _losses(given, changed, loaders[1], [other for _, other in batches[: len(before)]])
    if not all(map(math.isfinite, (*before, *after))) or not before or len(before) != len(after):
        return None
    return Losses(tuple(before), tuple(after))


def _batches_alike(one: DataLoader[Any], other: DataLoader[Any]) -> bool:
    return one.batch_size is not None and one.batch_size == other.batch_size


def _batch(loader: DataLoader[Any], number: int) -> Any:
    """A batch of fixed samples with fixed random numbers, made in this process."""
    for seed in (random.seed, torch.manual_seed, np.random.seed):
        seed(number)
    dataset: Any = loader.dataset
    size, length = loader.batch_size or 1, len(dataset)
    indices = [(number * size + at) % length for at in range(size)]
    samples = dataset.__getitems__(indices) if hasattr(dataset, "__getitems__") else [dataset[i] for i in indices]
    return (loader.collate_fn or default_collate)(samples)


def _losses(
    given: Pipeline,
    pipeline: Pipeline,
    loader: DataLoader[Any],
    batches: Sequence[Any],
    is_late: Callable[[], bool] = lambda: False,
) -> list[float]:
    """The loss of each step; the weights of the job, and of a copy that the change has made, are put back."""
    device = device_of(pipeline)
    others = {"the model as it was given": given.model, "the optimizer as it was given": given.optimizer}
    kept = preserved(
        model=pipeline.model, optimizer=pipeline.optimizer, train_step=pipeline.train_step, device=device, others=others
    )
    with kept:
        torch.manual_seed(0)
        job = JobOnDevice.of(pipeline, loader, device)
        job.move_model()
        losses: list[float] = []
        for batch in batches:
            loss = loss_in(job.step(job.transfer(trees.copy_deep(batch))))
            losses += [] if loss is None else [float(loss)]
            if is_late():
                break
        return losses
