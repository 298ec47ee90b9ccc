"""The edge between two epochs of the user's own: how long the job stands before the next one's first batch."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from bottleneck.measure.failure import loader_failures
from bottleneck.staging import stages
from bottleneck.staging.loader import SwitchedLoader

_TRIALS = 3
_LONG_S = 1.0
"""A first batch that takes longer is not tried again."""


def describe_epoch_gap(
    loader: SwitchedLoader, clock: Callable[[], float], *, persistent_workers: bool, first_batch_s: float
) -> dict[str, Any] | None:
    """Return how long the first batch of an epoch takes.

    Workers that are not persistent are started anew for each epoch, and everything that they keep is made again:
    that takes what the first batch of the diagnosis took. Persistent ones only have an empty queue.

    Args:
        loader: The running loader; it rests afterwards.
        clock: Seconds from any beginning.
        persistent_workers: What the user's loader says.
        first_batch_s: Time from starting the workers to the first batch [s].

    Returns:
        `seconds`, `persistent_workers` and `started_anew`; None without workers, and for a stream of persistent
        workers, which begins anew in a way that only its dataset knows.
    """
    if not loader.num_workers or (persistent_workers and loader.iterable):
        return None
    seconds = first_batch_s if not persistent_workers else _first_of_empty_queue(loader, clock)
    return {"seconds": seconds, "persistent_workers": persistent_workers, "started_anew": not persistent_workers}


def _first_of_empty_queue(loader: SwitchedLoader, clock: Callable[[], float]) -> float:
    """Time the first batch that workers at rest are asked for."""
    taken: list[float] = []
    with loader_failures("raw"):
        while len(taken) < _TRIALS:
            loader.rest()
            started = clock()
            loader.switch(stages.ALL)
            loader.next_batch()
            taken.append(clock() - started)
            if taken[-1] > _LONG_S:
                break
        loader.rest()
    return statistics.median(taken)
