"""Consequences of how busy the cores are, and the costs of starting workers and copying the dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bottleneck.analysis.advice.case import WORTH, Case, Suggestion, rule
from bottleneck.analysis.advice.saturation import THROTTLED
from bottleneck.analysis.edits.edits import THREADS
from bottleneck.analysis.plan.plan import cores_needed
from bottleneck.analysis.ranks import ranks_per_host
from bottleneck.analysis.settings import over_0, raw_usage
from bottleneck.analysis.statistics import ratio, series
from bottleneck.results.format import duration, gain_interval, names, number, percent, plural, size
from bottleneck.results.records import Interval

_CORE_WAIT = 0.25
"""Seconds without a core per second of work, above which workers get into each other's way."""
_OTHERS = 0.25
"""The share of the cores that others may keep busy before they are named first."""
_OWN_THREADS = 2
"""Threads of each worker itself: that of the user's code, and that of the queue behind it."""
_OVERSUBSCRIBED = 2.0
"""Threads for each core that are far too many."""


@rule("workers-cannot-help")
def _workers_cannot_help(case: Case) -> Iterator[Suggestion]:
    """Advise less work, or more processors, if the loader limits the job and its cores are used up."""
    found, raw, ranks = case.saturation, raw_usage(case.evidence), ranks_per_host(case.ranks)
    if not case.input_bound or not case.workers or case.transport_bound or case.evidence.loader.idle_workers:
        return
    if found is None or not found.lacks_cores or raw is None or raw.cores_main is None or raw.cores_workers is None:
        return
    own = raw.cores_main + raw.cores_workers
    if own <= 0:
        return
    others = found.cores_other or 0.0
    busy = {"cores_busy": found.cores_busy, "cores": found.cores, "cores_own": own}
    # What the job itself needs cannot be measured in a crowd; the first thing is to stop the others.
    foreign = others - (case.evidence.ranks.other_ranks_cores or 0.0)
    if found.cores is not None and foreign >= _OTHERS * found.cores:
        promised = case.at_most_headroom(_gain_of_freed_cores(case, own, foreign))
        if promised < WORTH:
            return
        yield Suggestion(
            title="Free the cores that other processes use: more workers would find none",
            why=f"{found.sentence} Other processes take {number(foreign, 2)} cores, the job itself {number(own, 2)}.",
            how="stop the other processes (top lists them) or use another machine, and measure again",
            evidence={**busy, "cores_other": foreign},
            gain=promised,
        )
        return
    needed = math.ceil(own * max(case.headroom, 1.0))
    device = "" if case.on_cpu else ", or work moved to the device"
    here, who = (found.cores or needed) / max(1, ranks), "a rank" if ranks > 1 else "the job"
    plan = cores_needed(f"{needed}", here) if not case.on_cpu else f"To keep up with its step it needs about {needed}."
    yield Suggestion(
        title="The CPU is saturated: do less work per sample; more workers would not help",
        why=f"{found.sentence} With {_all_workers(case)} {who} uses {number(own, 2)} cores. {plan}",
        how=f"fewer operations on smaller samples{device}, or a machine with more cores",
        # What less work would gain goes with how much less; the advice on its stages has that.
        evidence={**busy, "cores_needed": needed},
    )


def _gain_of_freed_cores(case: Case, own: float, others: float) -> float:
    """Return the job's largest gain from other processes' cores: the time that it waited for a core, if measured."""
    most = (own + others) / own
    core_wait = case.evidence.core_wait_per_cpu_s
    if core_wait is None:
        return most
    waited = max(0.0, core_wait)
    # Of each second all processes of the job wait so long, at the rate of its workers: it gets no more than that back.
    waited_share = waited * own
    return min(most, 1 + waited, 1 / (1 - waited_share) if waited_share < 1 else math.inf)


def _cores(cores: float) -> str:
    return f"{number(cores, 0 if cores == int(cores) else 1)} {'core' if cores == 1 else 'cores'}"


def _pressure(case: Case) -> tuple[str, dict[str, float]] | None:
    """Return evidence that threads wait for cores, with its numbers; None if there is none.

    Where cores are left, workers may well be more than these: they wait for a disk or the network.
    """
    found, raw = case.saturation, raw_usage(case.evidence)
    if case.verdict.state == "device_bound" or found is None or raw is None or not found.lacks_cores:
        return None
    throttled, core_wait = raw.throttled_share, case.evidence.core_wait_per_cpu_s
    if throttled is not None and throttled >= THROTTLED:
        return f"the CPU quota stopped the job in {percent(throttled)} of its periods", {"throttled_share": throttled}
    if core_wait is not None and core_wait >= _CORE_WAIT:
        what = f"for each second of work the workers waited {duration(core_wait)} for a core"
        return what, {"core_wait_per_cpu_s": core_wait}
    return None


def _would_fit(case: Case, cores: float) -> bool:
    """Return True if what the job computes would fit on its cores: workers that wait are not in each other's way."""
    raw, core_wait = raw_usage(case.evidence), case.evidence.core_wait_per_cpu_s
    if raw is None or raw.cores_main is None or raw.cores_workers is None or core_wait is None:
        return False
    return raw.cores_main + raw.cores_workers * (1 + max(0.0, core_wait)) < cores


@rule("too-many-workers")
def _too_many_workers(case: Case) -> Iterator[Suggestion]:
    """Advise fewer workers if there are more than cores, and they stand in each other's way."""
    workers, pressure, cores = case.workers, _pressure(case), case.evidence.utilisation.cores.usable
    if pressure is None or not cores or workers <= cores or _would_fit(case, cores):
        return
    wanted = max(1, int(cores))
    yield Suggestion(
        title=f"Lower num_workers from {workers:.0f} to {wanted}",
        why=f"{workers:.0f} workers share {_cores(cores)}, and {pressure[0]}. "
        "Workers beyond the number of cores do no extra work; each takes memory, and switching takes time.",
        how=case.loader_with(f"num_workers={wanted}"),
        evidence={
            "num_workers": workers,
            "proposed": {"num_workers": wanted},
            "usable_cores": cores,
            **pressure[1],
        },
    )


_ONE_THREAD = (
    "def one_thread(worker): torch.set_num_threads(1)  # cv2.setNumThreads(0), numexpr.set_num_threads(1)\n"
    "DataLoader(..., worker_init_fn=one_thread)  # and OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 before python"
)


def _tried_threads(case: Case) -> Iterator[Suggestion]:
    """Advise the trial's setting if it helped: clearly, or while threads also wait for cores."""
    found, trial = _gain_of_one_thread(case), case.evidence.thread_trial
    threads, cores = case.evidence.loader.library_threads, case.evidence.utilisation.cores.usable
    if found is None or threads is None or not cores or not _helps(case, found):
        return
    yield Suggestion(
        title="Let each worker compute with one thread",
        why=f"Libraries in each of {_all_workers(case)} compute with {plural(threads, 'thread')}, "
        f"{case.workers * threads:.0f} in all on {_cores(cores)}. With one thread each the job was "
        f"{gain_interval(found)} as fast, over {plural(len(trial.one_thread), 'pair')} of blocks.",
        how=_ONE_THREAD,
        evidence={"num_workers": case.workers, "threads": threads, "usable_cores": cores},
        gain=found,
        measured=True,
    )


def _gain_of_one_thread(case: Case) -> Interval | None:
    trial = case.evidence.thread_trial
    return ratio(series(trial.as_it_is), series(trial.one_thread)) if case.workers else None


def _helps(case: Case, found: Interval) -> bool:
    return found.estimate >= WORTH and (found.low > 1 or _pressure(case) is not None)


def threads_of_little_use(case: Case) -> str:
    """Return a clause on a trial of one thread in each worker that did not help enough; empty without one."""
    found, threads = _gain_of_one_thread(case), case.evidence.loader.library_threads
    cores = case.evidence.utilisation.cores.usable
    if found is None or threads is None or not cores or _helps(case, found):
        return ""
    return (
        f"libraries compute with {plural(threads, 'thread')} in each of {_all_workers(case)}, on {_cores(cores)}; with "
        f"one each, such as by cv2.setNumThreads(0), the job was {gain_interval(found)} as fast in a trial"
    )


@rule(THREADS)
def _threads(case: Case) -> Iterator[Suggestion]:
    """Advise one thread in each worker if a trial shows its gain, or their threads are far more than the cores."""
    if case.evidence.thread_trial.one_thread:
        yield from _tried_threads(case)
        return
    workers, pressure, cores = case.workers, _pressure(case), case.evidence.utilisation.cores.usable
    threads = case.evidence.utilisation.workers.threads
    if pressure is None or not workers or not cores or threads is None:
        return
    extra = threads - _OWN_THREADS
    computing = workers * (1 + extra)
    if extra < 1 or computing <= _OVERSUBSCRIBED * cores:
        return
    yield Suggestion(
        title="Let each worker compute with one thread",
        why=f"Each of {_all_workers(case)} has {threads:.0f} threads, {computing:.0f} in all that may "
        f"compute on {_cores(cores)}, and {pressure[0]}.",
        how=_ONE_THREAD,
        evidence={"num_workers": workers, "threads": threads, "usable_cores": cores, **pressure[1]},
    )


@rule("worker-affinity")
def _affinity(case: Case) -> Iterator[Suggestion]:
    """Advise to widen the cores of workers that may run on fewer of them than the main process."""
    usage = case.evidence.utilisation.workers
    workers, each = usage.count, usage.affinity_cores
    together, main = usage.affinity_cores_together, usage.main_affinity_cores
    if not case.input_bound or not workers or each is None or main is None or each >= main:
        return
    # Workers that are each bound to a core of their own have as many as they use.
    room = each if together is None else together
    if room <= 0 or room >= min(workers, main):
        return
    yield Suggestion(
        title="Let the workers run on all cores",
        why=f"{plural(workers, 'worker')} may run on {room:.0f} of the {main:.0f} cores that the main process may "
        "use: a library, or the process that started them, has narrowed their affinity.",
        how="def all_cores(worker): os.sched_setaffinity(0, range(os.cpu_count()))\n"
        "DataLoader(..., worker_init_fn=all_cores)",
        evidence={"num_workers": workers, "affinity_cores": room, "main_affinity_cores": main},
        gain=case.at_most_headroom(min(workers, main) / room),
    )


# --- the memory and open files of workers -------------------------------------------------------------------


_MEMORY_SHARE = 0.1
"""Share of the free memory that copies in the workers may take without advice."""
_MAX_NAMED = 3


@rule("fork-unsafe-handles")
def _fork_unsafe_handles(case: Case) -> Iterator[Suggestion]:
    """Advise to open files in the workers if forked workers share the dataset's open files."""
    handles = [handle for handle in case.evidence.loader.open_handles if handle.path]
    if not case.workers or not handles:
        return
    first, listed = str(handles[0].path), names([f"{one.path} ({one.type or 'open'})" for one in handles[:_MAX_NAMED]])
    yield Suggestion(
        title="Open files in each worker, not before it starts",
        why=f"Open at the fork of {_all_workers(case)}: {listed}. They share one position in the file: "
        "reads can block each other, fail or return wrong data.",
        how=f"set {first} = None in __init__, and open it at the first __getitem__: if {first} is None: {first} = ...",
        evidence={"open_handles": listed, "num_workers": case.workers},
    )


@rule("python-objects")
def _python_objects(case: Case) -> Iterator[Suggestion]:
    """Advise arrays if forked workers would copy many Python objects page by page."""
    facts, free = case.evidence.loader, case.free_memory_bytes
    nbytes, objects = over_0(facts.python_object_bytes), over_0(facts.python_objects)
    if facts.start_method != "fork" or not case.workers or not nbytes or not objects or not free:
        return
    copies = nbytes * case.workers
    if copies < _MEMORY_SHARE * free:
        return
    where = facts.python_objects_largest or "the dataset"
    yield Suggestion(
        title=f"Keep {where} in arrays instead of Python objects",
        why=f"The dataset holds about {number(objects)} Python objects ({size(nbytes)}), most "
        f"of them in {where}. Each of {_all_workers(case)} copies the pages as it reads them: up to "
        f"{size(copies)}, {percent(copies / free)} of the free memory.",
        how=f"{where} = np.array({where}) (fixed-width text and numbers), or one byte array and offsets; Arrow and "
        "tensors are shared as well",
        evidence={
            "python_objects": objects,
            "python_object_bytes": nbytes,
            "num_workers": case.workers,
            "memory_available_bytes": free,
        },
    )


def _all_workers(case: Case) -> str:
    return plural(round(case.workers), "worker")


RULES = (
    _workers_cannot_help,
    _too_many_workers,
    _threads,
    _affinity,
    _fork_unsafe_handles,
    _python_objects,
)
