"""Waits of the job for its batches, and between two epochs for the first batch of the next.

The first start of a diagnosis is that of the first epoch: files are on disk, code was never loaded and memory never
used. Later starts, of loaders like the job's, show the cost of starts to the other epochs.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import torch
from scipy.special import bdtrc
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from bottleneck.job.loader_classes import can_skip_batches, is_pytorchs, keeps_workers
from bottleneck.loader import modes
from bottleneck.loader.clone import clone_for_one_start
from bottleneck.loader.processes import end_workers
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.machine.environment import free_memory_bytes
from bottleneck.results.evidence import EpochGap, Stalls, Waits
from bottleneck.results.records import Block

_FAR = 6.0
"""Standard deviations over the usual wait above which a wait is a stall."""
_SCALE_OF_MAD = 1.4826
"""Factor from a median absolute deviation to the standard deviation of a normal distribution."""
_SHARE_OF_STEP = 0.25
"""Excess of a stall over the usual wait, as a share of a step, at least."""
_MIN_S = 1e-3
"""Variation of taking a batch from a queue."""
_MIN_TURNS = 8
"""Turns of the workers needed to know the usual wait."""
_MIN_GAPS = 4
"""Distances between stalls needed to know a period."""
_TOLERANCE = 0.1
"""Deviation of a distance from the period, as a share of it; a batch at least is allowed beyond short ones."""
_CHANCE = 0.01
"""Probability of equally regular stalls without a period, over all periods that were tried."""


def summarise_waits(waits_s: Iterable[float]) -> Waits:
    """Return count, mean, percentiles and maximum of the waits for batches, in seconds."""
    values = np.asarray(list(waits_s), dtype=float)
    p50, p95, p99 = np.percentile(values, [50, 95, 99]).tolist()
    return Waits(p50=p50, p95=p95, p99=p99, max=float(values.max()), count=values.size, mean=float(values.mean()))


def find_stalls(blocks: Sequence[Sequence[float]], seconds: float, workers: int) -> Stalls | None:
    """Find waits far above the usual one.

    Workers deliver in bursts: if the loader is slower, one batch of each turn of all workers is waited for, and the
    others come at once. That is not a stall. So the usual wait is the longest one of a turn, its median over turns,
    and its spread their median absolute deviation.

    Args:
        blocks: The waits of each block, batch after batch [s].
        seconds: Time of all blocks together [s].
        workers: Workers of the loader; 0 counts as 1.

    Returns:
        The stalls; `period_batches` and `period_s` are None if they are irregular or too few. None if there are too
        few batches to know the usual wait.
    """
    turn = max(1, workers)
    longest = [max(block[at : at + turn]) for block in blocks for at in range(0, len(block) - turn + 1, turn)]
    batches = sum(len(block) for block in blocks)
    if len(longest) < _MIN_TURNS or seconds <= 0:
        return None
    usual_s = float(np.median(longest))
    spread_s = _SCALE_OF_MAD * float(np.median(np.abs(np.asarray(longest) - usual_s)))
    step_s = seconds / batches
    threshold_s = usual_s + max(_FAR * spread_s, _SHARE_OF_STEP * step_s, _MIN_S)
    positions = [[at for at, wait in enumerate(block) if wait > threshold_s] for block in blocks]
    lost_s = sum(wait - usual_s for block in blocks for wait in block if wait > threshold_s)
    period = find_period(positions, batches)
    return Stalls(
        count=sum(len(found) for found in positions),
        threshold_s=threshold_s,
        lost_share=min(1.0, lost_s / seconds),
        period_batches=period,
        period_s=None if period is None else period * step_s,
    )


def find_period(positions: Sequence[Sequence[int]], batches: int) -> int | None:
    """Return the distance in batches at which stalls recur; None if there is none.

    If each batch were a stall by chance, with the same probability q, the distances would be geometric: a distance
    from a to b has the probability (1 - q)^(a - 1) - (1 - q)^b. There is a period if more distances are near one value
    than that explains (a binomial test, Bonferroni over the values that were tried).

    Args:
        positions: The stalls of each block, as numbers of batches in it.
        batches: Batches in all blocks together.
    """
    gaps = np.concatenate([np.diff(found) for found in positions if len(found)] or [np.array([], dtype=int)])
    if len(gaps) < _MIN_GAPS:
        return None
    rate = sum(len(found) for found in positions) / batches
    candidates = [int(value) for value in np.unique(gaps) if value > 1]
    best: tuple[float, int] | None = None
    for period in candidates:
        slack = int(_TOLERANCE * period)
        near = int(np.count_nonzero(np.abs(gaps - period) <= slack))
        if near <= len(gaps) / 2:  # most of them must keep the distance
            continue
        by_chance = (1 - rate) ** (period - slack - 1) - (1 - rate) ** (period + slack)
        chance = len(candidates) * float(bdtrc(near - 1, len(gaps), by_chance))
        if chance < _CHANCE and (best is None or chance < best[0]):
            best = chance, period
    return None if best is None else best[1]


def describe_waits(waits_s: Sequence[float], blocks: Sequence[Block], workers: int) -> tuple[Waits, Stalls]:
    """Return the evidence on waits, and on stalls if there were enough batches.

    Args:
        waits_s: The wait for each batch of some blocks, in order [s]; at least one.
        blocks: The blocks.
        workers: Workers of the loader.
    """
    ends = list(itertools.accumulate(block.batches for block in blocks))
    if not ends or ends[-1] != len(waits_s):
        return summarise_waits(waits_s), Stalls()  # ended in the middle of a block
    parts = [waits_s[end - block.batches : end] for end, block in zip(ends, blocks, strict=True)]
    stalls = find_stalls(parts, sum(block.seconds for block in blocks), workers)
    return summarise_waits(waits_s), stalls or Stalls()


_TRIALS = 3
_LONG_S = 1.0
"""Seconds of a first batch above which it is timed only once."""
_TRIED_LENGTH = 1_000_000
"""Indices permuted for timing: some 50 MiB and 100 ms."""
_LONGER_PER_INDEX = 1.5
"""Limit of the time per index for far more of them over that: 1.35 for 3 * 10^7, which no cache holds."""


def describe_epoch_gap(
    loader: SwitchedLoader,
    user_loader: DataLoader[Any],
    clock: Callable[[], float],
    starts_s: Sequence[float],
    *,
    asked: bool,
) -> EpochGap | None:
    """Return the wait of the job for the first batch of an epoch.

    Workers that are not persistent start again for each epoch, and recreate everything that they keep. Persistent ones
    only have an empty queue.

    Args:
        loader: The running loader; it rests afterwards.
        user_loader: The user's loader.
        clock: Monotonic seconds.
        starts_s: Times from starting the workers to the first batch [s].
        asked: True if these include the wait for the user's own sampler.

    Returns:
        The gap; None for a stream of persistent workers, which begins again in a way that only its dataset knows.
    """
    persistent_workers = keeps_workers(user_loader)
    if loader.num_workers and persistent_workers and loader.iterable:
        return None
    restarted = not persistent_workers if loader.num_workers else None
    waits = list(starts_s) if restarted else _first_of_empty_queue(loader, clock) if loader.num_workers else [0.0]
    order_s, longest_order_s = _order_s(loader, clock)
    if restarted and asked and loader.order.permutation_length is None:
        added_s = longest_added_s = 0.0
    else:
        added_s, longest_added_s = order_s, longest_order_s
    return EpochGap(
        seconds=statistics.median(waits) + added_s,
        # Workers start while the permutation is made.
        low_s=max(min(waits), added_s) if restarted else min(waits) + added_s,
        high_s=max(waits) + longest_added_s,
        order_s=order_s,
        persistent_workers=persistent_workers,
        started_anew=restarted,
        batches=batches_of_epoch(user_loader),
    )


def with_later_orders(gap: EpochGap, loader: SwitchedLoader) -> EpochGap:
    """Return the gap with the later time for choosing the order in an epoch, if that was shorter."""
    later_s = loader.order.first_choice_s
    if loader.order.permutation_length is not None or later_s is None or gap.order_s is None or gap.seconds is None:
        return gap
    less_s = max(0.0, gap.order_s - later_s)
    low_s = None if gap.low_s is None else max(0.0, gap.low_s - less_s)
    return replace(gap, order_s=gap.order_s - less_s, seconds=max(0.0, gap.seconds - less_s), low_s=low_s)


def batches_of_epoch(loader: DataLoader[Any]) -> float | None:
    """Return the batches of an epoch, counting a partial one as its share; None if unknown."""
    try:
        sampler = loader.batch_sampler
        stream = isinstance(loader.dataset, IterableDataset)
        if not stream and is_pytorchs(sampler, BatchSampler) and loader.batch_size and not loader.drop_last:
            return max(1.0, len(sampler.sampler) / loader.batch_size)  # type: ignore[union-attr]  # a batch sampler has one
        return float(len(loader))
    except Exception:  # noqa: BLE001 - the user's own __len__, which many streams lack
        return None


def _order_s(loader: SwitchedLoader, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the time of the user's sampler before the first batch of an epoch, and its maximum [s]."""
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


STARTS = 2
_MATTERS = 0.005
"""Share of an epoch below which the start of its workers changes no printed number."""
_BUDGET_SHARE = 0.04
"""Share of the budget for each start."""
_PATIENCE_S = 1.0
_HANG_S = 20.0


def later_start_matters(gap: EpochGap, step_s: float | None, budget_s: float) -> bool:
    """Return True if the workers start again for each epoch, in a time that matters and fits into the budget.

    Args:
        gap: The gap by the first start.
        step_s: Approximate time of a step.
        budget_s: Seconds of the whole diagnosis.
    """
    if not gap.started_anew or not gap.batches or not gap.seconds or not step_s:
        return False
    return _MATTERS * gap.batches * step_s < gap.seconds < _BUDGET_SHARE * budget_s


def later_starts_s(loader: SwitchedLoader, user_loader: DataLoader[Any], clock: Callable[[], float]) -> list[float]:
    """Return the times for starting the workers, up to their first batch, and ending them [s]; empty if that fails.

    Args:
        loader: Its workers are at rest, and hold as much memory as the started ones.
        user_loader: The user's loader.
        clock: Monotonic seconds.
    """
    if loader.iterable or not can_skip_batches(user_loader) or _memory_of(loader.workers) > free_memory_bytes():
        return []
    loader.rest()
    try:
        return [_start(loader, user_loader, clock) for _ in range(STARTS)]
    except Exception:  # noqa: BLE001 - the first start counts then; errors of the job show in rounds
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
        end_workers(iterator, _PATIENCE_S)


def _end_s(iterator: Any, left: int, clock: Callable[[], float]) -> float:
    """Return the time of the job after its last batch until the workers have ended; 0 if batches take long."""
    until_s = clock() + _PATIENCE_S
    for _ in range(left):
        next(iterator)
        if clock() > until_s:
            return 0.0
    began_s = clock()
    next(iterator, None)
    return clock() - began_s


def _memory_of(pids: tuple[int, ...]) -> int:
    """Return the memory of processes [bytes]; shared memory counts for each."""
    try:
        return sum(psutil.Process(pid).memory_info().rss for pid in pids)
    except psutil.Error:
        return 0
