"""Open the user's loader as one that can be switched, start its workers, and look at their first batch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from bottleneck.errors import MeasurementError
from bottleneck.job.cuts import CutSite
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.caches import CacheBudget, CachedBatch, choose_budget, held_bytes, keep_on_host
from bottleneck.measure.device import JobOnDevice, free_device_bytes
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.machine.environment import rank_memory_bytes
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.passes.pyspy import allow_tracing
from bottleneck.measure.running import FirstBatch

_EMPTY_BATCHES = 20
"""Batches that may be None, as filters return them, before their size counts as unknown."""
_CHECKING_SHARE = 0.1
"""Share of the budget in which the workers check that recordings replay; with slow samples they check less."""
_HANG_S = 300.0
"""Seconds that the first batch may take, which may open a large dataset."""
_MIN_HANG_S = 60.0
"""Seconds that later batches may take, at least."""
_HANG_FACTOR = 20.0
"""The same as a multiple of the first batch's time."""


def open_loader(
    loader: DataLoader[Any], sites: tuple[CutSite, ...], options: MeasureOptions, budget_s: float
) -> SwitchedLoader:
    """Return the user's loader as a switchable one; its workers have not been started."""
    try:
        return SwitchedLoader(
            loader,
            sites,
            options.seed,
            _HANG_S,
            at_start=allow_tracing if options.profile is not None else None,
            notes_files=options.cold,
            checking_s=_CHECKING_SHARE * budget_s,
        )
    except OSError as error:
        raise MeasurementError(
            f"There is no room for a temporary file: {error}.",
            "Free some space in /dev/shm or the temporary folder.",
        ) from error


@dataclass(frozen=True)
class Started:
    """The first batch of the workers.

    Attributes:
        seconds: Time from starting the workers until it came.
        nbytes: Its size.
        first: Time of its arrival, and the time of a worker for it.
        kept: The batch itself, if the job is so slow that it is measured with it before anything is recorded.
    """

    seconds: float
    nbytes: int
    first: FirstBatch
    kept: CachedBatch | None


def start_workers(loader: SwitchedLoader, clock: Callable[[], float], slow_s: float = math.inf) -> Started:
    """Start the workers, and wait for their first batch that a filter has not left empty.

    Args:
        slow_s: Seconds per batch above which the job is measured before anything is recorded.
    """
    started = clock()
    with loader_failures("raw"):
        loader.start()
        batch, samples = loader.next_batch()
        came_s = clock()
        for _ in range(_EMPTY_BATCHES if batch is None else 0):
            batch, samples = loader.next_batch()
            if batch is not None:
                break
    seconds = came_s - started
    loader.set_timeout(max(_MIN_HANG_S, _HANG_FACTOR * seconds))
    first = FirstBatch(_worker_s(loader, seconds), came_s)
    slow = batch is not None and first.worker_s > slow_s
    return Started(seconds, held_bytes(batch), first, CachedBatch(keep_on_host(batch), samples) if slow else None)


def _worker_s(loader: SwitchedLoader, seconds: float) -> float:
    """Return the seconds of a worker for its first batch; if unknown, the seconds until it came."""
    known = [tally.first_s for tally in loader.tallies() if tally.first_s]
    return statistics.fmean(known) if known else seconds


def allow_caches(loader: SwitchedLoader, job: JobOnDevice, batch_bytes: int, given: int | None) -> CacheBudget:
    """Divide the memory for caches, now that the size of a batch is known, and allot the workers their part.

    Args:
        given: Limit in bytes set by the user; None for the job's needs.
    """
    budget = choose_budget(
        batch_bytes,
        max(1, loader.num_workers),
        given=given,
        free_bytes=rank_memory_bytes(),
        device_shares=job.copies and (given is not None or free_device_bytes(job.device) is None),
    )
    loader.allow_caches(budget.worker_bytes)
    return budget
