"""`bottleneck.workers`: find the right number of workers for a loader within seconds, for authors of libraries."""

from __future__ import annotations

import math
import multiprocessing
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from bottleneck.errors import MeasurementError, UsageError
from bottleneck.job.loader_args import start_method_of
from bottleneck.measure.keep.preserved import preserved
from bottleneck.measure.machine.environment import rank_memory_bytes
from bottleneck.measure.machine.limits import usable_cores
from bottleneck.tuner import kept
from bottleneck.tuner.search import Search, Visit
from bottleneck.tuner.visits import LoaderVisits

SECONDS = 15.0
_DEFAULT_DEPTH = 2
"""PyTorch's default of batches prefetched by each worker."""
_MAX_DEPTH = 16
_DEEPER_TIMES = 1.05
"""Minimum speedup by a longer queue, in each of two turns, because it takes memory."""
_STREAM = "the dataset is a stream, which divides itself among the workers in its own way"
_DAEMON = "this process is a worker itself, and cannot start any"
_NO_TIME = "there was no time for another number of workers"


@dataclass(frozen=True)
class Workers:
    """Result of `workers`.

    Attributes:
        num_workers: Number of workers to use; the loader's present number if no other is better.
        prefetch_factor: Batches prefetched by each worker; None without workers.
        start_method: Start method of the loader's workers, which is never changed; None without workers.
        samples_per_s: Throughput by number of workers tried, with the step if its time was given.
        given: The loader's present number of workers.
        reason: Why no other number was tried; None if some were.
        seconds: Duration of the search.
        is_kept: True if found earlier, on this machine.
    """

    num_workers: int
    prefetch_factor: int | None
    start_method: str | None
    samples_per_s: Mapping[int, float]
    given: int
    reason: str | None = None
    seconds: float = 0.0
    is_kept: bool = field(default=False, compare=False)

    @property
    def gain(self) -> float:
        """Throughput relative to that with the loader's present number of workers; 1.0 if nothing was measured."""
        known = self.samples_per_s
        return known[self.num_workers] / known[self.given] if self.given in known else 1.0

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments for a DataLoader: `DataLoader(dataset, **found.arguments)`."""
        if not self.num_workers:
            return {"num_workers": 0}
        return {"num_workers": self.num_workers, "prefetch_factor": self.prefetch_factor}


def workers(
    loader: DataLoader[Any], step_s: float | None = None, seconds: float = SECONDS, *, fresh: bool = False
) -> Workers:
    """Find the right number of workers for a loader on this machine, by running it alone for some seconds.

    The loader, its dataset, samplers and generators, and all random numbers of the process, are left unchanged.
    Results are kept in the user's cache folder, by machine, dataset and settings.

    Args:
        loader: A DataLoader of PyTorch, or of a subclass.
        step_s: Seconds per train step without loading: find the fewest workers that keep a device with such a step
            busy. None: find the number with which the loader is fastest.
        seconds: Maximum duration.
        fresh: Measure again even if a result is kept.

    Raises:
        UsageError: An argument is invalid.
        MeasurementError: The loader itself fails.
    """
    if not isinstance(loader, DataLoader):
        raise UsageError(f"workers takes a DataLoader, not a {type(loader).__name__}.", "Write workers(loader).")
    for name, value in (("step_s", step_s), ("seconds", seconds)):
        if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
            raise UsageError(f"{name} must be a number of seconds over 0, not {value!r}.")
    if isinstance(loader.dataset, IterableDataset):
        return _as_given(loader, _STREAM)
    if multiprocessing.current_process().daemon:
        return _as_given(loader, _DAEMON)
    key = kept.key_of(loader, step_s)
    if not fresh and (known := kept.read(key)) is not None:
        return known
    found, is_complete = _find(loader, step_s, seconds)
    if is_complete:
        kept.write(key, found)
    return found


def _as_given(loader: DataLoader[Any], reason: str, rates: Mapping[int, float] | None = None) -> Workers:
    has_any = loader.num_workers > 0
    return Workers(
        loader.num_workers,
        loader.prefetch_factor if has_any else None,
        start_method_of(loader) if has_any else None,
        rates or {},
        loader.num_workers,
        reason,
    )


def _find(loader: DataLoader[Any], step_s: float | None, seconds: float) -> tuple[Workers, bool]:
    """Return the result of a search within some seconds, and True if the time was enough."""
    began_s, given = time.perf_counter(), loader.num_workers
    failed: set[int] = set()
    visits = LoaderVisits(loader, began_s + seconds)

    def visit(count: int) -> Visit | None:
        try:
            return visits(count)
        except MeasurementError:  # other numbers may run, for example if shared memory is short
            if count == given:
                raise
            failed.add(count)
            return None

    search = Search(visit, given, usable_cores(), step_s, rank_memory_bytes())
    with preserved(loader=loader, dataset=loader.dataset), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")  # tried on purpose
        count = search.run()
        depth = loader.prefetch_factor or _DEFAULT_DEPTH
        if count > 1 and count in search.seen and _is_deeper_better(visits, count, depth):
            depth *= 2
    rates = {tried: seen.samples_per_batch / search.period_s(tried) for tried, seen in sorted(search.seen.items())}
    is_complete = bool(rates) and search.refused <= failed
    found = Workers(
        num_workers=count,
        prefetch_factor=depth if count else None,
        start_method=start_method_of(loader) if count else None,
        samples_per_s=rates,
        given=given,
        reason=None if is_complete or len(rates) > 1 else _NO_TIME,
        seconds=time.perf_counter() - began_s,
    )
    return found, is_complete


def _is_deeper_better(visits: LoaderVisits, count: int, depth: int) -> bool:
    """Return True if a prefetch queue of twice the length is better, for example for very uneven batches."""
    if 2 * depth > _MAX_DEPTH:
        return False
    for _ in range(2):
        pair = [visits(count, prefetch) for prefetch in (depth, 2 * depth)]
        paces = [visit.seconds / visit.batches for visit in pair if visit is not None]
        if len(paces) < len(pair) or paces[0] < _DEEPER_TIMES * paces[1]:
            return False
    return True
