"""What follows from how busy the cores are: workers that cannot help, are too many, or get too few of the cores."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bottleneck.analysis.advice.rule import Case, Suggestion, rule
from bottleneck.analysis.advice.worker_gain import WORTH
from bottleneck.analysis.ranks import ranks_per_host
from bottleneck.analysis.saturation import THROTTLED, raw_usage
from bottleneck.results.format import duration, number, percent, plural

_CORE_WAIT = 0.25
"""Seconds without a core for each second of work, from which on workers get into each other's way."""
_OTHERS = 0.25
"""The share of the cores that others may keep busy before they are named first."""
_OWN_THREADS = 2
"""Of each worker: that of the user's code, and that of the queue behind it."""
OVERSUBSCRIBED = 2.0
"""Threads for each core that are far too many."""
_ELSEWHERE = "ray.data.read_images(PATH).map(augment).iter_torch_batches(batch_size={batch_size:.0f})"
_BATCH_SIZE = 32
"""Shown where that of the job is unknown."""
_ON_DEVICE = "images = torchvision.transforms.v2.ColorJitter(0.4, 0.4, 0.4)(images.to(device)) in the train step"


@rule("workers-cannot-help")
def _workers_cannot_help(case: Case) -> Iterator[Suggestion]:
    """Advise less work, or more processors, where the loader holds the job and its cores are used up."""
    found, own = case.saturation, _own_cores(case)
    if not case.input_bound or not case.workers or case.held_behind_workers:
        return
    if found is None or not found.lacks_cores or own is None or own <= 0:
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
            title="Free the cores that others use: more workers would find none",
            why=f"{found.sentence} Processes of others take {number(foreign, 2)} cores, the job itself "
            f"{number(own, 2)}.",
            how="stop what else runs (top shows it), or take another machine, and measure again",
            evidence={**busy, "cores_other": foreign},
            gain=promised,
        )
        return
    needed = math.ceil(own * max(case.headroom, 1.0))
    device = "" if case.on_cpu else f"; or on the device: {_ON_DEVICE}"
    yield Suggestion(
        title="The CPU is saturated: do less work per sample; more workers would not help",
        why=f"{found.sentence} With {_workers(case.workers)} {_who(case)} uses {number(own, 2)} cores; to keep up with "
        f"the device, the same work would take about {needed}.",
        how="fewer operations on smaller samples, or a machine with more cores; or other machines that prepare "
        f"the data: {_ELSEWHERE.format(batch_size=case.number('batch_size') or _BATCH_SIZE)}{device}",
        # What less work would gain goes with how much less; the advice on its stages has that.
        evidence={**busy, "cores_needed": needed},
    )


def _gain_of_freed_cores(case: Case, own: float, others: float) -> float:
    """The most that the job gains by the cores of others: what it got no core for, where that was measured."""
    most = (own + others) / own
    core_wait = case.evidence.core_wait_per_cpu_s
    if core_wait is None:
        return most
    waited = max(0.0, core_wait)
    # Of each second all processes of the job wait so long, at the rate of its workers: it gets no more than that back.
    waited_share = waited * own
    return min(most, 1 + waited, 1 / (1 - waited_share) if waited_share < 1 else math.inf)


def _who(case: Case) -> str:
    return "a rank" if ranks_per_host(case.ranks) > 1 else "the job"


def _workers(workers: float) -> str:
    return plural(round(workers), "worker")


def _cores(cores: float) -> str:
    return f"{number(cores, 0 if cores == int(cores) else 1)} {'core' if cores == 1 else 'cores'}"


def _own_cores(case: Case) -> float | None:
    """The cores that the job itself keeps busy."""
    raw = raw_usage(case.evidence)
    if raw is None or raw.cores_main is None or raw.cores_workers is None:
        return None
    return raw.cores_main + raw.cores_workers


def _pressure(case: Case) -> tuple[str, dict[str, float]] | None:
    """What shows that threads wait for cores, and its numbers; None where nothing does.

    Where cores are left, workers may well be more than these: they wait for a disk or the network.
    """
    found, raw = case.saturation, raw_usage(case.evidence)
    if case.verdict.state == "device_bound" or found is None or raw is None or not found.lacks_cores:
        return None
    throttled, core_wait = raw.throttled_share, case.evidence.core_wait_per_cpu_s
    if throttled is not None and throttled >= THROTTLED:
        return f"the quota stopped the job in {percent(throttled)} of its periods", {"throttled_share": throttled}
    if core_wait is not None and core_wait >= _CORE_WAIT:
        what = f"for each second of work the workers stood ready without a core for {duration(core_wait)}"
        return what, {"core_wait_per_cpu_s": core_wait}
    return None


@rule("too-many-workers")
def _too_many_workers(case: Case) -> Iterator[Suggestion]:
    """Advise fewer workers where there are more than cores, and they stand in each other's way."""
    workers, pressure, cores = case.workers, _pressure(case), case.evidence.utilisation.cores.usable
    if pressure is None or not cores or workers <= cores:
        return
    wanted = max(1, int(cores))
    yield Suggestion(
        title=f"Lower num_workers from {workers:.0f} to {wanted}",
        why=f"{workers:.0f} workers share {_cores(cores)}, and {pressure[0]}. "
        "More workers than cores do no more work; each takes memory, and switching between them takes time.",
        how=case.loader_with(f"num_workers={wanted}"),
        evidence={
            "num_workers": workers, "proposed": {"num_workers": wanted}, "usable_cores": cores, **pressure[1],
        },
    )  # fmt: skip


@rule("thread-oversubscription")
def _threads(case: Case) -> Iterator[Suggestion]:
    """Advise one thread in each worker where their threads are far more than the cores."""
    workers, pressure, cores = case.workers, _pressure(case), case.evidence.utilisation.cores.usable
    threads = case.evidence.utilisation.workers.threads
    if pressure is None or not workers or not cores or threads is None:
        return
    extra = threads - _OWN_THREADS
    computing = workers * (1 + extra)
    if extra < 1 or computing <= OVERSUBSCRIBED * cores:
        return
    yield Suggestion(
        title="Let each worker compute with one thread",
        why=f"Each of {_workers(workers)} has {threads:.0f} threads, {computing:.0f} in all that may "
        f"compute on {_cores(cores)}, and {pressure[0]}.",
        how="def one_thread(worker): cv2.setNumThreads(0); torch.set_num_threads(1)\n"
        "DataLoader(..., worker_init_fn=one_thread), and OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 before python",
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
        why=f"{_workers(workers)} may run on {room:.0f} of the {main:.0f} cores that the main process may use; a "
        "library has narrowed their affinity, or the process that started them had.",
        how="def all_cores(worker): os.sched_setaffinity(0, range(os.cpu_count()))\n"
        "DataLoader(..., worker_init_fn=all_cores)",
        evidence={"num_workers": workers, "affinity_cores": room, "main_affinity_cores": main},
        gain=case.at_most_headroom(min(workers, main) / room),
    )


RULES = (_workers_cannot_help, _too_many_workers, _threads, _affinity)
