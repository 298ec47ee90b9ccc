"""What another number of workers would bring: as tried, or as far as cores and the main process allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bottleneck.analysis.advice.rule import Case
from bottleneck.analysis.estimates.statistics import mean_spread
from bottleneck.analysis.ranks import ranks_per_host, workers_that_fit
from bottleneck.analysis.saturation import raw_usage
from bottleneck.analysis.settings import number
from bottleneck.results.names import DEVICE
from bottleneck.results.records import Interval

WORTH = 1.05
"""The gain below which a change is not advised."""
_IDLE_CORES = 0.2
"""What the main process keeps busy beside a step that computes elsewhere, or waits."""


@dataclass(frozen=True)
class Way:
    """One way to load that was tried beside the job as it is."""

    workers: int
    threads: int
    """Threads of torch in the main process."""
    gain: Interval
    """Throughput over that of the job as it is."""


def ways_tried(case: Case) -> tuple[Way, ...]:
    """What a job without workers got with some, as tried; none where nothing was."""
    found = []
    for way in case.evidence.workers_tried.ways:
        gain = _gain_of_pairs(way.pairs)
        if gain is not None:
            found.append(Way(way.num_workers, way.torch_threads, gain))
    return tuple(found)


def _gain_of_pairs(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    """The gain over pairs of seconds: the job as it is, and with workers. A single pair has no interval."""
    logs = [math.log(alone / fed) for alone, fed in pairs if alone > 0 and fed > 0]
    if not logs:
        return None
    if len(logs) == 1:
        return Interval(math.exp(logs[0]), 0.0, math.exp(logs[0]))
    return mean_spread(np.array(logs)).exponentiated()


def best_way(case: Case) -> Way | None:
    """The way with the fewest workers that gains as much as any that surely gains; None where none does."""
    sure = [way for way in ways_tried(case) if way.gain.low > 1 and way.gain.estimate >= WORTH]
    most = max((way.gain.estimate for way in sure), default=0.0)
    near = [way for way in sure if way.gain.estimate * 1.03 >= most]
    # To leave the threads as they are is the smaller change.
    return min(near, key=lambda way: (way.workers, -way.threads), default=None)


def step_cores(case: Case) -> int | None:
    """The cores that workers had better leave to the train step; None where that is unknown.

    A step on the CPU whose threads share a core with a worker waits for that thread in each of its operations. On a
    machine that others use it keeps fewer cores busy than it has threads, and needs them all the same.
    """
    if not case.on_cpu:
        return 0
    usage = raw_usage(case.evidence, DEVICE)
    busy = None if usage is None else usage.cores_main
    if busy is None or busy <= _IDLE_CORES:
        return None if busy is None else 0
    threads = number(case.environment, "torch_threads")
    return max(math.ceil(busy - _IDLE_CORES), int(threads) if threads is not None else 1)


def most_workers(case: Case) -> int | None:
    """The workers that cores are left for beside the step; None where that is unknown.

    Ranks of one host share its cores, and a rank's main process takes one, as where they are advised fewer.
    """
    taken = step_cores(case)
    if case.cores is None or taken is None:
        return None
    fit = workers_that_fit(case.ranks, max(1, taken)) if ranks_per_host(case.ranks) > 1 else None
    return case.cores - taken if fit is None else min(case.cores - taken, fit)


def gain_of_first_workers(case: Case, workers: int) -> float | None:
    """The most that a job without workers gains by some; None where the hand-off was not measured."""
    main_s, worker_s = case.evidence.handoff.main_cpu_s_per_batch, case.evidence.handoff.s_per_batch
    if main_s is None or worker_s is None or workers < 1:
        return None
    fed_s = max(case.device_s + main_s, (case.loader_s + worker_s) / workers, worker_s)
    return case.at_most_headroom(case.step_s / fed_s) if fed_s > 0 else None


def gain_of_more_workers(case: Case, workers: float, wanted: int) -> float:
    """The most that a job gains by more workers: no more than they are, and what comes next allows.

    That is the main process, which takes each batch, and the cores: what a batch takes of them stays the same.
    """
    # A loader that holds the job takes no longer than the job's step, whatever short blocks of it alone say.
    limits_s = [min(case.loader_s, case.step_s) * workers / wanted, case.fed_s or case.device_s]
    raw = raw_usage(case.evidence)
    if case.cores and raw is not None and raw.cores_main is not None and raw.cores_workers is not None:
        left = max(case.cores - (raw.cores_other or 0.0), 0.1)
        limits_s.append((raw.cores_main + raw.cores_workers) * case.step_s / left)
    slowest_s = max(limits_s)
    factor = case.step_s / slowest_s if slowest_s > 0 else 1.0
    return case.at_most_headroom(min(factor, wanted / workers))


def more_at_once(case: Case, text: str) -> str:
    """A remark on more workers for what waits, with the setting in it; empty where they are of no use or impossible."""
    if not case.has_loader or case.evidence.loader.own_workers or (ways_tried(case) and best_way(case) is None):
        return ""
    return text.format(setting=case.setting(f"num_workers={max(4, 2 * int(case.workers))}"))
