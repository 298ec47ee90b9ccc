"""How long workers take to end and to start between two epochs: the user's own start again, beside those that rest.

The first start of a diagnosis is that of a training's first epoch: it finds files on the disk, code that was never
loaded and memory that was never used. What the epochs of a job lose to their starts goes by the later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil
from torch.utils.data import DataLoader

from bottleneck.loader.running import detach_sigchld, drain, stop_workers
from bottleneck.loader.switched import SwitchedLoader, can_skip_batches, clone_for_one_start
from bottleneck.measure.environment import free_memory_bytes
from bottleneck.results.evidence import EpochGap

_STARTS = 2
_MATTERS = 0.005
"""Share of an epoch below which the start of its workers changes no number that is printed."""
_BUDGET_SHARE = 0.04
"""Of the budget, for each start."""
_PATIENCE_S = 1.0
_HANG_S = 20.0


def later_start_matters(gap: EpochGap, step_s: float | None, budget_s: float) -> bool:
    """Whether the workers start again for each epoch, in a time that shows and that the budget has room for.

    Args:
        gap: From the first start.
        step_s: About what a step takes.
        budget_s: Time of the whole diagnosis.
    """
    if not gap.started_anew or not gap.batches or not gap.seconds or not step_s:
        return False
    return _MATTERS * gap.batches * step_s < gap.seconds < _BUDGET_SHARE * budget_s


def later_starts_s(loader: SwitchedLoader, user_loader: DataLoader[Any], clock: Callable[[], float]) -> list[float]:
    """Return the times from starting the workers to their first batch, and to end them [s]; none where that fails.

    Args:
        loader: Its workers are at rest, and hold as much memory as those that are started.
        user_loader: The user's.
        clock: Seconds from any beginning.
    """
    if loader.iterable or not can_skip_batches(user_loader) or _memory_of(loader.workers) > free_memory_bytes():
        return []
    loader.rest()
    try:
        return [_start(loader, user_loader, clock) for _ in range(_STARTS)]
    except Exception:  # noqa: BLE001 - the first start counts then; what is wrong with the job shows in rounds
        return []


def _start(loader: SwitchedLoader, user_loader: DataLoader[Any], clock: Callable[[], float]) -> float:
    requests = loader.order.next_requests(loader.num_workers)
    again = clone_for_one_start(user_loader, requests, _HANG_S)
    began_s = clock()
    iterator = iter(again)
    try:
        next(iterator)
        started_s = clock() - began_s
        return started_s + _end_s(iterator, len(requests) - 1, clock)
    finally:
        detach_sigchld(iterator)
        stop_workers(iterator, kill=not drain(iterator, _PATIENCE_S))


def _end_s(iterator: Any, left: int, clock: Callable[[], float]) -> float:
    """Return how long the job stands after its last batch until the workers have ended; 0 where batches take long."""
    until_s = clock() + _PATIENCE_S
    for _ in range(left):
        next(iterator)
        if clock() > until_s:
            return 0.0
    began_s = clock()
    next(iterator, None)
    return clock() - began_s


def _memory_of(pids: tuple[int, ...]) -> int:
    """Return what processes hold [bytes]; what they share counts for each."""
    try:
        return sum(psutil.Process(pid).memory_info().rss for pid in pids)
    except psutil.Error:
        return 0
