"""The edge between two epochs of the user's own: how long the job waits for the first batch of the next one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from bottleneck.job.loader_args import is_pytorchs
from bottleneck.loader import modes
from bottleneck.loader.switched import SwitchedLoader, keeps_workers
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.results.evidence import EpochGap

_TRIALS = 3
_LONG_S = 1.0
"""A first batch that takes longer is timed only once."""
_TRIED_LENGTH = 1_000_000
"""Indices that are permuted to time it: some 50 MiB and 100 ms."""
_LONGER_PER_INDEX = 1.5
"""What permuting far more of them takes for each, at most: 1.35 times as much for 3 * 10^7, which no cache holds."""


def describe_epoch_gap(
    loader: SwitchedLoader,
    user_loader: DataLoader[Any],
    clock: Callable[[], float],
    starts_s: Sequence[float],
    *,
    asked: bool,
) -> EpochGap | None:
    """Return how long the job waits for the first batch of an epoch.

    Workers that are not persistent are started anew for each epoch, and everything that they keep is made again.
    Persistent ones only have an empty queue.

    Args:
        loader: The running loader; it rests afterwards.
        user_loader: The user's.
        clock: Seconds from any beginning.
        starts_s: Times from starting the workers to the first batch [s].
        asked: These have waited for the user's own sampler.

    Returns:
        None for a stream of persistent workers, which begins again in a way that only its dataset knows.
    """
    persistent_workers = keeps_workers(user_loader)
    if loader.num_workers and persistent_workers and loader.iterable:
        return None
    anew = not persistent_workers if loader.num_workers else None
    waits = list(starts_s) if anew else _first_of_empty_queue(loader, clock) if loader.num_workers else [0.0]
    order_s, longest_order_s = _order_s(loader, clock)
    if anew and asked and loader.order.permutation_length is None:
        added_s = longest_added_s = 0.0
    else:
        added_s, longest_added_s = order_s, longest_order_s
    return EpochGap(
        seconds=statistics.median(waits) + added_s,
        # Workers that start do so while the permutation is made.
        low_s=max(min(waits), added_s) if anew else min(waits) + added_s,
        high_s=max(waits) + longest_added_s,
        order_s=order_s,
        persistent_workers=persistent_workers,
        started_anew=anew,
        batches=batches_of_epoch(user_loader),
    )


def batches_of_epoch(loader: DataLoader[Any]) -> float | None:
    """Return the batches of an epoch, of which a partial one counts as its part; None where that is unknown."""
    try:
        sampler = loader.batch_sampler
        stream = isinstance(loader.dataset, IterableDataset)
        if not stream and is_pytorchs(sampler, BatchSampler) and loader.batch_size and not loader.drop_last:
            return max(1.0, len(sampler.sampler) / loader.batch_size)  # type: ignore[union-attr]  # a batch sampler has one
        return float(len(loader))
    except Exception:  # noqa: BLE001 - a length of the user's own, which many streams do not have
        return None


def _order_s(loader: SwitchedLoader, clock: Callable[[], float]) -> tuple[float, float]:
    """Return what the user's own sampler takes before the first batch of an epoch, and the most it may take [s]."""
    length = loader.order.permutation_length
    if length is None:
        taken = loader.order.first_choice_s or 0.0
        return taken, taken
    tried = min(length, _TRIED_LENGTH)
    started = clock()
    torch.randperm(tried, generator=torch.Generator().manual_seed(0)).tolist()
    taken = (clock() - started) * length / max(tried, 1)
    return taken, taken * (_LONGER_PER_INDEX if length > tried else 1.0)


def _first_of_empty_queue(loader: SwitchedLoader, clock: Callable[[], float]) -> list[float]:
    """Time the first batch of workers at rest, a few times."""
    taken: list[float] = []
    with loader_failures("raw"):
        while len(taken) < _TRIALS:
            loader.rest()
            started = clock()
            loader.switch(modes.ALL)
            loader.next_batch()
            taken.append(clock() - started)
            if taken[-1] > _LONG_S:
                break
        loader.rest()
    return taken
