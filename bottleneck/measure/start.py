"""Open the user's loader as one that can be switched, start its workers, and look at their first batch.

Where batches come slowly, the state of the job is measured right then: raw as it runs from its start, then device, with
nothing recorded. To record, and to switch to each experiment, takes every worker a batch or two. With 64 workers that
each take a minute for a batch, that alone is longer than any budget, while the job that was started runs already.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from bottleneck.errors import MeasurementError
from bottleneck.job.cuts import CutSite
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.caches import CacheBudget, CachedBatch, choose_budget, held_bytes, keep_on_host
from bottleneck.measure.device import JobOnDevice, free_device_bytes
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.machine.environment import rank_memory_bytes
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.passes.pyspy import allow_tracing

_EMPTY_BATCHES = 20
"""Batches that may be None, as filters give them, until one is waited for no longer to know its size."""
_CHECKING_SHARE = 0.1
"""The share of the budget in which the workers check that recordings replay; with slow samples they check less."""
_HANG_S = 300.0
"""How long the first batch may take; opening a large dataset does."""
_SHORTEST_HANG_S, _HANG_FACTOR = 60.0, 20.0
"""Later ones may take this, or this many times what the first took."""
RUNNING_ROUNDS = 3
_SLOW_SHARE = 0.15
"""Share of the budget: where the first batch took longer, the state comes first."""
_SLOW_S = 5.0
"""Not where that is the start of the workers alone."""
_BLOCK_S = 1.5
_FEWEST_BATCHES = 2
_BATCHES_FOR_STAGES = 5
"""How many times what the first batch took the stages take at least: recording, two switches, and a block or two."""
_BATCHES_TO_NAME_ONE = 15


def open_loader(
    loader: DataLoader[Any], sites: tuple[CutSite, ...], options: MeasureOptions, budget_s: float
) -> SwitchedLoader:
    """Return the user's loader as one that can be switched; its workers have not been started."""
    try:
        return SwitchedLoader(
            loader, sites, options.seed, _HANG_S,
            at_start=allow_tracing if options.profile is not None else None,
            notes_files=options.cold, checking_s=_CHECKING_SHARE * budget_s,
        )  # fmt: skip
    except OSError as error:
        raise MeasurementError(
            f"There is no room for a temporary file: {error}.",
            "Free some space in /dev/shm or the temporary folder.",
        ) from error


@dataclass(frozen=True)
class FirstBatch:
    """What the first batch of the workers says."""

    seconds: float
    """From starting the workers until it came."""
    nbytes: int
    kept: CachedBatch | None
    """The batch itself, where the job is so slow that it is measured with it before anything is recorded."""


def start_workers(loader: SwitchedLoader, budget_s: float, clock: Callable[[], float]) -> FirstBatch:
    """Start the workers, and wait for their first batch that is none of those that filters leave empty."""
    started = clock()
    with loader_failures("raw"):
        loader.start()
        batch, samples = loader.next_batch()
        seconds = clock() - started
        for _ in range(_EMPTY_BATCHES if batch is None else 0):
            batch, samples = loader.next_batch()
            if batch is not None:
                break
    loader.set_timeout(max(_SHORTEST_HANG_S, _HANG_FACTOR * seconds))
    slow = loader.num_workers and batch is not None and is_slow(seconds, budget_s)
    return FirstBatch(seconds, held_bytes(batch), CachedBatch(keep_on_host(batch), samples) if slow else None)


def allow_caches(loader: SwitchedLoader, job: JobOnDevice, batch_bytes: int, given: int | None) -> CacheBudget:
    """Divide the memory for caches up, now that the size of a batch is known, and let the workers have their part.

    Args:
        given: Bytes that the user allows; None: what the job needs.
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


# --- the running start of a slow job ------------------------------------------------------------------------


def is_slow(first_batch_s: float, budget_s: float) -> bool:
    """Whether the state of a job should be measured before anything is recorded."""
    return first_batch_s > max(_SLOW_S, _SLOW_SHARE * budget_s)


def too_slow_for_stages(first_batch_s: float, spent_s: float, budget_s: float) -> tuple[str, str] | None:
    """Return id and message of a warning where there is no time to measure anything of the stages."""
    if budget_s - spent_s > _BATCHES_FOR_STAGES * first_batch_s:
        return None
    wanted_s = spent_s + _BATCHES_TO_NAME_ONE * first_batch_s
    return (
        "too-slow-for-stages",
        f"The first batch took {first_batch_s:.0f} s. The budget was enough for how the job runs as a whole, and not "
        f"for its stages: give it --budget {math.ceil(wanted_s / 60)}m.",
    )


def measure_running_start(bench: Bench, ledger: Ledger) -> None:
    """Measure raw without a break, and then device; both get the rounds 1 to `RUNNING_ROUNDS`.

    The loader was started, and has been asked for nothing but real batches.
    """
    raw, device = Ladder.raw, Ladder.device
    bench.measure(device, 0, 1)  # the workers are busy: this says about how long a step is, and no more
    bench.waits_s.clear()
    step_s = bench.step_s or 0.0
    bench.prepare_running(_BLOCK_S)
    # Together a turn of all workers at least, which began together: within one there may be no wait, or all of it.
    batches = max(block_batches(raw, step_s, _BLOCK_S, 1), math.ceil(bench.loader.num_workers / RUNNING_ROUNDS))
    until_s, bench.until_s = bench.until_s, bench.clock()  # no time to wait for the queue to be as it was
    for number in range(1, RUNNING_ROUNDS + 1):
        ledger.add(raw, bench.measure(raw, number, batches))
    bench.until_s = until_s
    bench.prepare(device)
    batches = max(_FEWEST_BATCHES, block_batches(device, step_s, _BLOCK_S, 0))
    for number in range(1, RUNNING_ROUNDS + 1):
        ledger.add(device, bench.measure(device, number, batches))
