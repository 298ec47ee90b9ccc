"""The losses of a job before and after a change, on the same samples and from the same weights."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of
from bottleneck.measure.job_on_device import JobOnDevice
from bottleneck.measure.preserve.preserved import preserved
from bottleneck.measure.training.losses import loss_in
from bottleneck.results.tuning import Losses

STEPS = 20
LONGEST_S = 5.0
"""What loading the batches and training on them may take; where that is slow, there are fewer."""


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
    sizes = [loader.batch_size for loader in loaders]
    if any(isinstance(loader.dataset, IterableDataset) for loader in loaders) or sizes[0] != sizes[1] or not sizes[0]:
        return None
    deadline_s = clock() + LONGEST_S
    before = _losses(given, base, loaders[0], STEPS, lambda: clock() > deadline_s)
    after = _losses(given, changed, loaders[1], len(before), lambda: False)
    if not before or len(before) != len(after) or not all(map(math.isfinite, (*before, *after))):
        return None
    return Losses(tuple(before), tuple(after))


def _losses(
    given: Pipeline, pipeline: Pipeline, loader: DataLoader[Any], steps: int, is_late: Callable[[], bool]
) -> list[float]:
    """The loss of each step; the weights of the job, and of a copy that the change has made, are put back."""
    device = device_of(pipeline)
    others = {"the model as it was given": given.model, "the optimizer as it was given": given.optimizer}
    kept = preserved(
        model=pipeline.model, optimizer=pipeline.optimizer, train_step=pipeline.train_step, device=device, others=others
    )
    losses: list[float] = []
    with kept:
        job = JobOnDevice.of(pipeline, loader, device)
        job.move_model()
        for number in range(steps):
            _seed(number)
            batch = _batch(loader, number)
            _seed(number)  # making the batch may have taken other random numbers
            loss = loss_in(job.step(job.transfer(batch)))
            if loss is None:
                break
            losses.append(float(loss))
            if is_late():
                break
    return losses


def _seed(number: int) -> None:
    for seed in (random.seed, torch.manual_seed, np.random.seed):
        seed(number)


def _batch(loader: DataLoader[Any], number: int) -> Any:
    """A batch of fixed samples, made in this process."""
    dataset: Any = loader.dataset
    size, length = loader.batch_size or 1, len(dataset)
    indices = [(number * size + at) % length for at in range(size)]
    samples = dataset.__getitems__(indices) if hasattr(dataset, "__getitems__") else [dataset[i] for i in indices]
    return (loader.collate_fn or default_collate)(samples)
