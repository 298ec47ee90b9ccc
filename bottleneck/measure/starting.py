"""Starting up: the first batch of the workers, and single workers started by themselves to see what takes the time."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch.utils.data import DataLoader

from bottleneck.job.loader_args import start_method_of
from bottleneck.measure.passes.bare_start import start_s
from bottleneck.results.starting import AGAIN, FIRST_BATCH, SENDING, WORKERS, Starting, StartingPart

_MIN_TRIED_S = 1.0
"""Workers that start sooner are not looked at any further."""
_BUDGET_SHARE = 0.1
"""The share of the budget for each of the two processes that are started."""


def with_first_batch(found: Starting | None, first_batch_s: float, worker_s: float) -> Starting:
    """Tell the start of the workers from the time that one of them takes for its first batch.

    Args:
        found: What is known of a script from its beginning; None for a described job.
        first_batch_s: Time to the first batch of the workers of the diagnosis [s].
        worker_s: Time of a worker for its first batch [s].
    """
    if found is None:
        found = Starting(seconds=first_batch_s, parts=(StartingPart(name=WORKERS, seconds=first_batch_s),))
    whole_s = seconds_of(found, WORKERS)
    batch_s = min(worker_s, whole_s)
    return _divided(found, {WORKERS: whole_s - batch_s, FIRST_BATCH: batch_s})


def seconds_of(found: Starting, name: str) -> float:
    """Return the time of a part; 0 if there is none of that name."""
    return next((float(part.seconds or 0.0) for part in found.parts if part.name == name), 0.0)


def _divided(found: Starting, into: dict[str, float]) -> Starting:
    """Put parts in the place of the start of the workers."""
    made = [StartingPart(name=name, seconds=seconds) for name, seconds in into.items() if seconds > 0]
    parts = [new for part in found.parts for new in (made if part.name == WORKERS else [part])]
    return replace(found, parts=tuple(parts))


def is_worth_a_trial(found: Starting, loader: DataLoader[Any]) -> bool:
    """Return True if the workers are not forked and take long to start."""
    is_forked = not loader.num_workers or start_method_of(loader) == "fork"
    return not is_forked and seconds_of(found, WORKERS) >= _MIN_TRIED_S


def with_trial(found: Starting, loader: DataLoader[Any], clock: Callable[[], float], budget_s: float) -> Starting:
    """Start one process without the dataset and one with it, and divide the start of the workers accordingly.

    Args:
        found: With a start of the workers.
        loader: The user's loader.
        clock: Seconds from any beginning.
        budget_s: Of the whole diagnosis.
    """
    context = multiprocessing.get_context(start_method_of(loader))
    limit_s = _BUDGET_SHARE * budget_s
    bare_s = start_s(context, clock, limit_s)
    full_s = None if bare_s is None else start_s(context, clock, limit_s, loader.dataset)
    found = replace(found, bare_worker_s=bare_s, full_worker_s=full_s)
    if bare_s is None or full_s is None or not math.isfinite(full_s):
        return found
    whole_s, share = seconds_of(found, WORKERS), min(1.0, bare_s / full_s)
    return _divided(found, {AGAIN: share * whole_s, SENDING: (1 - share) * whole_s})
