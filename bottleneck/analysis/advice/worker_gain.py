"""What another number of workers would bring, as far as cores and the main process allow."""

from __future__ import annotations

import math

from bottleneck.analysis.advice.rule import Case
from bottleneck.analysis.ranks import ranks_per_host, workers_that_fit
from bottleneck.analysis.saturation import raw_usage
from bottleneck.analysis.settings import number
from bottleneck.results.names import DEVICE

WORTH = 1.05
"""The gain below which a change is not advised."""
_IDLE_CORES = 0.2
"""What the main process keeps busy during a step that computes elsewhere, or waits."""
_HANDOFF_S, _HANDOFF_BYTES_PER_S = 0.001, 1e9
"""What handing a batch over to the main process may take, with all that workers cost besides: rather more than less."""


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


def gain_of_first_workers(case: Case, workers: int) -> float:
    """The most that a job without workers gains by some, with what handing a batch over usually takes."""
    handoff_s = _HANDOFF_S + (case.evidence.payload.bytes or 0.0) / _HANDOFF_BYTES_PER_S
    fed_s = max(case.device_s + handoff_s / 2, (case.loader_s + handoff_s) / workers, _limit_of_cores_s(case))
    return case.at_most_headroom(case.step_s / fed_s)


def gain_of_more_workers(case: Case, workers: float, wanted: int) -> float:
    """The most that a job gains by more workers: no more than they are, and what comes next allows.

    That is the main process, which takes each batch, and the cores: what a batch takes of them stays the same.
    """
    # A loader that holds the job takes no longer than the job's step, whatever short blocks of it alone say.
    loader_s = min(case.loader_s, case.step_s) * workers / wanted
    slowest_s = max(loader_s, case.fed_s or case.device_s, _limit_of_cores_s(case))
    factor = case.step_s / slowest_s if slowest_s > 0 else 1.0
    return case.at_most_headroom(min(factor, wanted / workers))


def _limit_of_cores_s(case: Case) -> float:
    """The least that a batch takes, as its work needs the cores for so long; 0 where that is unknown."""
    raw = raw_usage(case.evidence)
    if not case.cores or raw is None or raw.cores_main is None:
        return 0.0
    left = max(case.cores - (raw.cores_other or 0.0), 0.1)
    return (raw.cores_main + (raw.cores_workers or 0.0)) * case.step_s / left


def more_at_once(case: Case, text: str) -> str:
    """A remark on more workers for what waits, with the setting in it; empty where there can be none."""
    if not case.has_loader or case.evidence.loader.own_workers:
        return ""
    return text.format(setting=case.setting(f"num_workers={max(4, 2 * int(case.workers))}"))
