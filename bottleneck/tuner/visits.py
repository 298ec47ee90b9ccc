"""Visits to a loader: runs of the loader alone with some number of workers, which leave its contents unchanged."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import psutil
from torch.utils.data import DataLoader, RandomSampler

from bottleneck.job.loader_args import rebuild_loader
from bottleneck.job.loader_classes import is_pytorchs
from bottleneck.loader import trees
from bottleneck.loader.switched import LoaderEnded, SwitchedLoader
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.keep.preserved import preserved
from bottleneck.tuner.search import Visit

_TIMED_S = 0.4
"""Minimum time over which batches are counted."""
_TURNS = 2
"""Minimum turns of all workers, because they deliver in bursts."""
_LONG_TURN_S = 1.0
"""Duration above which one turn is enough."""
_START_S = 0.2
"""Assumed time for starting and stopping workers, until it is known."""
_MAX_SKIPPED = 1000
"""Maximum batches by which a visit begins later in the order of samples than the one before."""


class LoaderVisits:
    """Visits a loader with one number of workers after the other; workers start afresh for each.

    Args:
        loader: The user's loader, which stays unchanged; its samplers and generators are advanced, so save them before.
        until_s: End of the last visit, by the clock.
        clock: Returns seconds from any origin.
    """

    def __init__(self, loader: DataLoader[Any], until_s: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._loader = loader
        self._until_s = until_s
        self._clock = clock
        self._number = self._used = 0
        self._made_s: float | None = None
        """Seconds in which a worker makes a batch."""
        self._starting_s = _START_S

    def __call__(self, workers: int, prefetch: int | None = None) -> Visit | None:
        """Visit a number of workers; return None if there is no time for it.

        Args:
            workers: Number of workers.
            prefetch: Batches prefetched by each worker; None: the loader's setting.

        Raises:
            MeasurementError: The loader does not run with them.
        """
        began_s = self._clock()
        if began_s + self._expected_s(workers) > self._until_s:
            return None
        # A dataset that runs in this process changes, which workers must not inherit.
        kept: AbstractContextManager[Any] = nullcontext()
        if not workers:
            kept = preserved(loader=self._loader, dataset=self._loader.dataset)
        with kept, loader_failures("raw"):
            depth = {} if prefetch is None else {"prefetch_factor": prefetch}
            found = self._visit(rebuild_loader(self._loader, {"num_workers": workers, **depth}))
        if found is not None and self._made_s is None:
            self._made_s = max(1, workers) * found.seconds / found.batches
        return found

    def _expected_s(self, workers: int) -> float:
        """Return the expected seconds of a visit, by the visits so far."""
        turn_s = self._made_s or 0.0
        if not workers:
            return max(_TIMED_S, 2 * turn_s)
        return self._starting_s + (2 if turn_s > _LONG_TURN_S else 1 + _TURNS) * turn_s

    def _visit(self, loader: DataLoader[Any]) -> Visit | None:
        self._number += 1
        left_s = max(0.1, self._until_s - self._clock())
        switched = SwitchedLoader(loader, (), self._number, left_s)
        try:
            if not is_pytorchs(switched.order.users_sampler, RandomSampler) and not switched.iterable:
                # Begin where earlier visits ended, because the samples that they read would be in memory.
                switched.order.next_requests(min(self._used, _MAX_SKIPPED))
            began_s = self._clock()
            switched.start()
            first, _ = switched.next_batch()
            if self._number == 1:
                self._starting_s = max(_START_S, self._clock() - began_s - _START_S)
            found = self._time(switched, trees.nbytes(first))
        except LoaderEnded:
            return None
        except RuntimeError as error:
            if "timed out" in str(error) and self._clock() >= self._until_s:
                return None  # the time of the visits is over, not the timeout of the user's loader
            raise
        else:
            self._used += found.batches + loader.num_workers
            return found
        finally:
            switched.close()

    def _time(self, switched: SwitchedLoader, batch_bytes: int) -> Visit:
        turn = max(1, switched.num_workers)
        for _ in range(turn - 1):
            switched.next_batch()
        batches = samples = ready = 0
        worker_s = _cpu_s(switched.workers)
        main_s = time.process_time()
        began_s = self._clock()
        while True:
            samples += switched.next_batch()[1]
            batches, seconds = batches + 1, self._clock() - began_s
            if batches % turn:
                continue
            ready += switched.arrived() or 0
            is_late = began_s + seconds * (1 + turn / batches) > self._until_s
            is_enough = seconds > _LONG_TURN_S or (batches >= _TURNS * turn and seconds >= _TIMED_S)
            if is_late or is_enough:
                break
        ready_bytes = batch_bytes * math.ceil(switched.queue_length / turn)
        ready_share = ready / (batches / turn) / max(1, switched.queue_length)
        return Visit(
            batches=batches,
            samples=samples,
            seconds=seconds,
            worker_cpu_s=_cpu_s(switched.workers) - worker_s,
            main_cpu_s=time.process_time() - main_s,
            ready_share=ready_share,
            worker_bytes=_private_bytes(switched.workers) + ready_bytes,
        )


def _cpu_s(workers: tuple[int, ...]) -> float:
    """Return the CPU seconds that processes have used so far; without any, those of this process."""
    if not workers:
        return time.process_time()
    used = 0.0
    for pid in workers:
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            used += times.user + times.system
    return used


def _private_bytes(workers: tuple[int, ...]) -> int:
    """Return the memory that the first of some processes shares with no other; 0 if unknown."""
    with suppress(psutil.Error, AttributeError, IndexError):
        return int(psutil.Process(workers[0]).memory_full_info().uss)
    return 0
