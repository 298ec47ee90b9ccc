"""Number of workers: none, some, more or fewer, each with the cost of the change in this job."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from bottleneck.analysis.advice.case import WORTH, Case, Suggestion, rule
from bottleneck.analysis.advice.transforms import undisturbed_s_per_batch
from bottleneck.analysis.edits.edits import NO_WORKERS
from bottleneck.analysis.network import find_network_limit
from bottleneck.analysis.ranks import ranks_per_host, workers_that_fit
from bottleneck.analysis.settings import number, raw_usage
from bottleneck.analysis.statistics import ratio, series
from bottleneck.analysis.workers import simulate
from bottleneck.results.format import duration, gain_interval, percent, plural, size
from bottleneck.results.names import COMPUTE, COPY, DEVICE, HANDOFF, crosses_process
from bottleneck.results.records import Interval

# --- room for workers ---------------------------------------------------------------------------------------


_MEMORY_SHARE = 0.8
"""Part of the memory that was free before the workers started, and of /dev/shm, that workers may take."""
_PREFETCH = 2  # PyTorch's default


def batch_room_bytes(case: Case, workers: float) -> float | None:
    """Return the bytes of /dev/shm that the prefetched batches take; None if unknown."""
    batch_bytes = case.evidence.payload.bytes
    return None if batch_bytes is None else workers * (case.number("prefetch_factor") or _PREFETCH) * batch_bytes


def _rooms(case: Case) -> Iterator[tuple[int, str, dict[str, float]]]:
    """Yield the most workers for which each kind of memory has room, a sentence on the limit, and its numbers."""
    usage, free = case.evidence.utilisation.workers, case.free_memory_bytes
    # The caches of the diagnosis are no memory of the job's.
    private = (usage.private_bytes or 0.0) - (usage.cache_bytes or 0.0)
    if case.workers and free is not None and private > 0:
        each = private / case.workers
        what = f"each worker takes {size(each)} of memory, and {size(free)} were free"
        yield int(_MEMORY_SHARE * free / each), what, {"worker_private_bytes": each, "memory_available_bytes": free}
    queued, shared = batch_room_bytes(case, 1), case.evidence.utilisation.shared_memory.size_bytes
    if queued and queued > 0 and shared is not None:
        what = f"the batches of each worker take {size(queued)} of the {size(shared)} of /dev/shm"
        yield int(_MEMORY_SHARE * shared / queued), what, {"worker_batches_bytes": queued, "shm_size_bytes": shared}


# --- what they would bring ----------------------------------------------------------------------------------


_IDLE_CORES = 0.2
"""Cores that the main process keeps busy during a step that computes elsewhere, or waits."""
_HANDOFF_S, _HANDOFF_BYTES_PER_S = 0.001, 1e9
"""Estimated cost of handing a batch over to the main process, with all other costs of workers; rather high."""
_CROWDED = 2.5
"""Times its time alone that a step of several threads takes which share their cores with workers, where that was not
measured: each of its operations waits for the last thread."""
_MIN_SHARE = 0.02
"""Part of its time for which even a waiting worker needs a core."""
_MAX_WAITING = 32
"""Workers proposed at once if they need hardly any core."""
_SPARE_SUPPLY = 1.1  # the loader should supply a tenth more than the device takes, for its uneven batches


@dataclass(frozen=True)
class Load:
    """The time that a batch takes of a process that loads.

    Attributes:
        total_s: With a core to itself.
        cpu_s: The part of it in which it needs one.
    """

    total_s: float
    cpu_s: float

    @property
    def share(self) -> float:
        """Part of its time for which a worker needs a core."""
        return min(1.0, max(_MIN_SHARE, self.cpu_s / self.total_s)) if self.total_s > 0 else 1.0


def load_of(case: Case) -> Load:
    """Return the load of a batch, by CPU time in the job or by the loader's own clocks; else all computing."""
    raw, workers = raw_usage(case.evidence), max(1.0, case.workers)
    # A loader that limits the job takes no longer than the job's step, even if short blocks of it alone differ.
    total_s = min(case.loader_s, case.step_s) * workers
    known = [(stage.wall_s_per_batch, stage.cpu_s_per_batch) for stage in case.stages]
    clocks = [(wall_s, cpu_s) for wall_s, cpu_s in known if wall_s is not None and cpu_s is not None]
    waited = 1 + max(0.0, case.evidence.core_wait_per_cpu_s or 0.0)
    wall_s, busy_s = sum(wall_s for wall_s, _ in clocks), sum(cpu_s * waited for _, cpu_s in clocks)
    if case.workers and raw is not None and raw.cores_workers is not None:
        return Load(total_s, min(total_s, raw.cores_workers * case.step_s))
    return Load(total_s, total_s * min(1.0, busy_s / wall_s) if wall_s > 0 else total_s)


def step_cores(case: Case) -> int | None:
    """Return the cores that the train step takes while it runs; None if unknown.

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


def _step_s(case: Case, taken: int) -> float:
    """Return the seconds of a step next to workers: as observed, or longer than alone if its threads wait."""
    if taken < 2:
        return case.device_s
    return max(case.device_s, (case.evidence.step_s_per_batch if case.workers else None) or _CROWDED * case.device_s)


def most_workers(case: Case, load: Load) -> int | None:
    """Return the number of workers that there are cores for; None if unknown.

    A worker that waits needs none; the train step takes its cores only while it runs. Ranks of one host share its
    cores, and a rank's main process takes one, as in the advice on fewer workers.
    """
    taken = step_cores(case)
    if case.cores is None or taken is None:
        return None
    limits = [case.cores / (load.share + taken * _step_s(case, taken) / max(load.total_s, 1e-9)), _MAX_WAITING]
    if load.share > _COMPUTES and taken:
        limits.append(case.cores)
    fit = workers_that_fit(case.ranks, max(1, taken)) if ranks_per_host(case.ranks) > 1 else None
    return int(min(limits if fit is None else [*limits, fit / load.share]) + 1e-6)


def usual_handoff_s(case: Case) -> float:
    """Return the estimated time for handing over the bytes of a batch in a few tensors; rather high."""
    return _HANDOFF_S + (case.evidence.payload.bytes or 0.0) / _HANDOFF_BYTES_PER_S


def gain_of_first_workers(case: Case, workers: int, load: Load, step_s: float) -> float:
    """Return the largest gain of a job without workers from some, with the usual cost of handing over a batch."""
    handoff_s = usual_handoff_s(case)
    fed_s = max(step_s + handoff_s / 2, (load.total_s + handoff_s) / workers, limit_of_cores_s(case))
    return case.at_most_headroom(case.step_s / fed_s)


def gain_of_more_workers(case: Case, workers: float, wanted: int, load: Load) -> float:
    """Return a job's largest gain from more workers, limited by their number and by the next limit.

    That is the main process, which takes each batch, and the cores: what a batch takes of them stays the same.
    """
    fed_s = max(case.fed_s or case.device_s, _step_s(case, step_cores(case) or 0), 1e-9)
    ahead = wanted * int(number(case.pipeline, "prefetch_factor") or 2)
    queued_s = fed_s / simulate(wanted, ahead, load.total_s, case.evidence.loaded_batches.cv or 0.0, fed_s)
    factor = case.step_s / max(queued_s, limit_of_cores_s(case))
    limit = find_network_limit(case.evidence)
    most = math.inf if limit is None else max(1.0, limit.speedup_of(wanted))
    return case.at_most_headroom(min(factor, wanted / workers, most))


def limit_of_cores_s(case: Case) -> float:
    """Return the least that a batch takes, as its work needs the cores for so long; 0 if that is unknown."""
    raw = raw_usage(case.evidence)
    if not case.cores or raw is None or raw.cores_main is None:
        return 0.0
    left = max(case.cores - (raw.cores_other or 0.0), 0.1)
    return (raw.cores_main + (raw.cores_workers or 0.0)) * case.step_s / left


def more_at_once(case: Case, text: str) -> str:
    """Return a remark on more workers for a stage that waits, with the setting; empty if there can be none."""
    if not case.has_loader or case.evidence.loader.own_workers or case.evidence.loader.idle_workers:
        return ""
    if reads_at_limit(case):
        return ""
    return text.format(setting=case.setting(f"num_workers={max(4, 2 * int(case.workers))}"))


def reads_at_limit(case: Case) -> bool:
    """Return True if storage behind a network gives more workers no more in all."""
    limit = find_network_limit(case.evidence)
    return limit is not None and limit.is_shared


# --- the rules ----------------------------------------------------------------------------------------------


_LOADER_SHARE_WORTH_WORKERS = 0.1
_COMPUTES, _WAITS = 0.9, 0.5
"""Shares of its time above which a worker always computes, and below which it mostly waits."""
_WORTH_LEAVING_WORKERS = 1.1
_CONTENTION = 1.25
"""Slowdown by other ranks' loaders above which more workers are not a remedy."""


def _edit(case: Case, workers: int, threads: int | None) -> tuple[str, str, dict[str, object]]:
    """Return the edit's end of a title, its code and evidence; `threads` if the train step gets fewer.

    A report shows a setting of the loader as a diff, and both lines where there are two.
    """
    setting = f"num_workers={workers}"
    if threads is None:
        return "", case.loader_with(setting), {"proposed": {"num_workers": workers}}
    how = f"torch.set_num_threads({threads})  # in the main process\nDataLoader(..., {setting})"
    beside = f", with {plural(threads, 'thread')} for the train step"
    return beside, how, {"workers": workers, "torch_threads": threads}


def _tried(case: Case) -> Iterator[Suggestion]:
    """Advise the workers, and the threads of the step, with which the job was clearly faster in a trial."""
    trial = case.evidence.workers_trial
    base = series(trial.as_it_is)
    gains = [(gain, way) for way in trial.ways if (gain := ratio(base, series(way.blocks))) is not None]
    best = max(gains, key=lambda each: each[0].estimate, default=None)
    if best is None:
        return
    # Fewer threads are a second edit, which has to pay for itself.
    enough = (one for one in gains if one[1].threads == trial.threads and one[0].estimate * WORTH >= best[0].estimate)
    gain, way = next(enough, best)
    workers = way.num_workers or 0
    if gain.estimate < WORTH or gain.low <= 1 or workers <= case.workers:
        return
    beside, how, evidence = _edit(case, workers, None if way.threads == trial.threads else way.threads)
    title, now = f"Load in {plural(workers, 'worker process')}", "the main process loads and trains in turn"
    if case.workers:
        title, now = f"Raise num_workers from {case.workers:.0f} to {workers}", "the step waits for it"
    yield Suggestion(
        title=f"{title}{beside}",
        why=f"Loading takes {duration(case.loader_s)} of each {duration(case.step_s)} step, and {now}. Fed by "
        f"{plural(workers, 'worker')} that took as long for a batch{beside}, the job was {gain_interval(gain)} as "
        f"fast, over {plural(len(way.blocks), 'pair')} of blocks.",
        how=how,
        evidence={
            "num_workers": case.workers,
            "loader_s_per_batch": case.loader_s,
            "step_s": case.step_s,
            **evidence,
        },
        gain=Interval(*map(case.at_most_headroom, (gain.estimate, gain.low, gain.high))),
        measured=True,
    )


@rule("use-workers")
def _use_workers(case: Case) -> Iterator[Suggestion]:
    """Advise workers if the main process loads alone: those of a trial, or as many as there are cores for."""
    if case.number("num_workers") != 0 or not case.has_loader or not case.input_bound:
        return
    if case.evidence.loader.own_workers or reads_at_limit(case):  # a worker may start no processes
        return
    if case.evidence.workers_trial.ways:
        yield from _tried(case)
        return
    load, taken = load_of(case), step_cores(case)
    if case.loader_s <= _LOADER_SHARE_WORTH_WORKERS * case.step_s or taken is None or not case.cores:
        return
    most = min(case.cores / load.share, _MAX_WAITING, case.evidence.loader.shards or math.inf)
    slowest_s = max(case.device_s, limit_of_cores_s(case), 1e-9)
    workers = int(min(math.ceil(_SPARE_SUPPLY * load.total_s / slowest_s), most))
    # Beside workers, a step with as many threads as cores waits for them; with fewer it computes for longer.
    threads = max(1, math.floor(case.cores - load.share * workers))
    fewer = threads if threads < taken else None
    step_s = case.device_s * (taken / threads if fewer else 1.0)
    promised = gain_of_first_workers(case, workers, load, step_s) if workers else 1.0
    if promised < WORTH:
        return
    beside, how, evidence = _edit(case, workers, fewer)
    yield Suggestion(
        title=f"Load in {plural(workers, 'worker process')}{beside}",
        why=f"With num_workers=0 the device waits while the main process loads: {duration(case.loader_s)} of each "
        f"{duration(case.step_s)} step. Workers load during the step; handing over a batch has a cost, too.",
        how=how,
        evidence={"num_workers": 0, "loader_s_per_batch": case.loader_s, "step_s": case.step_s, **evidence},
        gain=promised,
    )


@rule("more-workers")
def _more_workers(case: Case) -> Iterator[Suggestion]:
    """Advise more workers if the workers limit the job and there are cores left for them, or they need none."""
    workers, load = case.workers, load_of(case)
    left = most_workers(case, load)
    if not case.input_bound or not workers or case.transport_bound or case.served_in_turn or reads_at_limit(case):
        return
    if case.evidence.workers_trial.ways:
        yield from _tried(case)
        return
    if case.cores is None or left is None or left <= workers or case.loader_s <= case.device_s:
        return
    used_up, contention = case.saturation, case.evidence.ranks.contention.ratio
    if (used_up is not None and used_up.lacks_cores) or (contention is not None and contention.low > _CONTENTION):
        return
    enough = math.ceil(workers * case.loader_s / case.device_s * _SPARE_SUPPLY)
    fits, limit, numbers = min(_rooms(case), key=lambda room: room[0], default=(left, "", {}))
    most = min(left, fits, case.evidence.loader.shards or left)
    wanted = int(min(enough, most))
    promised = gain_of_more_workers(case, workers, wanted, load) if wanted > workers else 1.0
    if promised < WORTH or case.evidence.loader.idle_workers or case.evidence.loader.made_per_sample:
        return
    short = "" if enough <= most else f" It would take about {enough}, so this alone is not enough."
    if fits < min(enough, left):
        short += f" Memory sets the limit: {limit}."
    elif left < enough and ranks_per_host(case.ranks) > 1:
        short += f" {plural(ranks_per_host(case.ranks), 'rank')} share the cores of the host."
    elif left < enough and step_cores(case):
        short += " The train step needs the other cores."
    waits = f" A worker needs a core for {percent(load.share)} of its time." if load.share < _WAITS else ""
    yield Suggestion(
        title=f"Raise num_workers from {workers:.0f} to {wanted}",
        why=f"The loader alone takes {duration(case.loader_s)} a batch with {plural(round(workers), 'worker')} on "
        f"{plural(case.cores, 'core')}, the train step only {duration(case.device_s)}.{waits}{short}",
        how=case.loader_with(f"num_workers={wanted}"),
        evidence={
            "num_workers": workers,
            "proposed": {"num_workers": wanted},
            "cpu_cores_available": case.cores,
            "loader_s_per_batch": case.loader_s,
            "device_s_per_batch": case.device_s,
            **numbers,
        },
        gain=promised,
    )


@rule(NO_WORKERS)
def _no_workers(case: Case) -> Iterator[Suggestion]:
    """Advise loading in the main process if that is less work than receiving the batches from workers."""
    if not case.workers or case.holding(HANDOFF) is None:
        return
    own = [stage for stage in case.stages if stage.name != COMPUTE and not crosses_process(stage.name)]
    works = [undisturbed_s_per_batch(case, stage) for stage in own]
    known = [work for work in works if work is not None]
    if not known or len(known) < len(works):
        return
    copy = case.stage(COPY)
    exposed = copy.exposed_s_per_batch if copy is not None else None
    copy_s, least_copy_s = (max(0.0, exposed.estimate), max(0.0, exposed.low)) if exposed else (0.0, 0.0)
    loading_s = sum(known)
    alone_s = case.device_s + copy_s + loading_s
    # A worker that waits for its next request begins each batch cold.
    costs = [stage.cost_s_per_batch.low if stage.cost_s_per_batch else math.inf for stage in own]
    least = (min(work, max(0.0, cost) * case.workers) for work, cost in zip(known, costs, strict=True))
    least_s = case.device_s + least_copy_s + sum(least)
    promised, most = case.step_s / alone_s, case.step_s / least_s
    if promised < _WORTH_LEAVING_WORKERS:
        return
    yield Suggestion(
        title="Load in the main process, without workers",
        why=f"One process loads a batch in {duration(loading_s)}: without workers a step would take "
        f"about {duration(alone_s)}, instead of {duration(case.step_s)} with them.",
        how=case.loader_with("num_workers=0"),
        evidence={
            "num_workers": case.workers,
            "proposed": {"num_workers": 0},
            "loading_s_per_batch": loading_s,
            "step_s": case.step_s,
            "alone_s": alone_s,
        },
        gain=Interval(*map(case.at_most_headroom, (promised, 1.0, max(promised, most)))),
    )


RULES = (_use_workers, _more_workers, _no_workers)
