"""Next steps for the stages that limit the job, and for waits: for workers, slow batches and storage."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bottleneck.analysis.advice.case import MUCH_COLLECTING, Case, Suggestion, rule
from bottleneck.analysis.advice.workers import more_at_once, reads_at_limit
from bottleneck.analysis.parts import waiting_share
from bottleneck.analysis.settings import MOSTLY, fits_in_memory
from bottleneck.results.format import (
    cache_option,
    duration,
    gain,
    gain_interval,
    names,
    number,
    percent,
    percent_interval,
)
from bottleneck.results.names import COLD, COMPUTE, FETCH, LOADING, OTHER, moves_batches, stages_in
from bottleneck.results.records import Stage

_LOOK, _CUT, _WAIT = "look-inside", "cut-fetch", "wait-less"


@rule("measure-longer")
def _measure_longer(case: Case) -> Iterator[Suggestion]:
    """Advise a longer measurement if the state is undecided, or too little was measured for a name."""
    if case.verdict.state == "device_bound" or case.budget is None or case.lost is None:
        return
    what = "that may or may not be worth work" if case.verdict.state == "undecided" else "no stage can be named yet"
    yield Suggestion(
        title="Measure longer before changing the input",
        why=f"The input costs {percent_interval(case.lost)} of the throughput: {what}. At most "
        f"{gain(case.headroom)} can be gained.",
        how=f"--budget {case.budget}",
        evidence={"loss_low": case.lost.low, "loss_high": case.lost.high},
    )


@rule(_LOOK, _CUT, "mark-other", "split-stages", _WAIT)
def _stages_that_hold_the_job(case: Case) -> Iterator[Suggestion]:
    """Advise a next step for the bottleneck and each contributor if its cost is known."""
    for stage in case.held_by:
        cost = stage.cost_s_per_batch or stage.exposed_s_per_batch
        # A stage may be named by what its workers do, before there are rounds enough for its cost.
        cost_s = stage.wall_s_per_batch if cost is None else cost.estimate
        waiting = waiting_share(stage, case.evidence)
        remedy = _remedy(case, stage, waits=waiting is not None and waiting > MOSTLY and not case.served_in_turn)
        if remedy is None or cost_s is None or cost_s <= 0:
            continue
        id, title, how = remedy
        evidence = {"cost_s_per_batch": cost_s, "step_s": case.step_s, "gain": case.gain_of(stage)}
        yield Suggestion(
            id=id,
            stage=stage.name,
            title=title,
            why=f"{stage.name} takes {duration(cost_s)} a batch, at a step of {duration(case.step_s)}."
            f"{_spent(stage, waiting)}",
            how=how,
            evidence=evidence if waiting is None else {**evidence, "waiting_share": waiting},
            frees_stage=True,
            fallback=id in (_LOOK, _CUT, _WAIT),
        )


def _remedy(case: Case, stage: Stage, *, waits: bool) -> tuple[str, str, str] | None:
    """Return id, title and remedy; None for a transport, which runs none of the user's code."""
    parts = stages_in(stage.name)
    if len(parts) > 1:
        wanted = case.evidence.cache_bytes_wanted
        option = "--cache-bytes SIZE (in Python: cache_bytes=)" if wanted is None else cache_option(wanted)
        return "split-stages", f"Give the caches more memory, to separate {names(parts)}", option
    if waits:
        return _WAIT, *wait_less(case, stage)
    lines = [line for line in case.evidence.lines if line.stage == stage.name]
    if stage.name == FETCH and case.has_loader and not (lines and all(line.library for line in lines)):
        title = "Separate augmentation from loading, to see which of the two is slow"
        if case.in_script:
            return _CUT, title, 'put @bottleneck.stage("augment") on the function of the dataset that augments'
        return _CUT, title, 'Pipeline(..., augment="transform"): the attribute of the dataset that augments'
    if stage.name == OTHER:
        title = "Mark more of __getitem__: most of its time is in unmarked code"
        return "mark-other", title, 'put @bottleneck.stage("name") on the functions that it calls, and diagnose again'
    if moves_batches(stage.name):
        return None
    # With a flamegraph the functions are known, the costliest first.
    costliest = next((seen for seen in case.evidence.profile.functions if seen.stage == stage.name), None)
    if costliest is not None and costliest.function and costliest.file:
        place = costliest.file if costliest.line is None else f"{costliest.file}:{costliest.line}"
        return _LOOK, f"Look at {costliest.function}, which takes the largest part of {stage.name}", f"it is at {place}"
    return _LOOK, f"Find the lines of {stage.name} that take the time", "--flamegraph DIR draws them"


_TOGETHER = (
    "let the samples of a batch wait at the same time, by a method of the dataset: "
    "def __getitems__(self, indices): return list(pool.map(self.__getitem__, indices)), with "
    "pool = concurrent.futures.ThreadPoolExecutor(16) at module level"
)
"""Advice for a worker that reads one sample after the other."""


def wait_less(case: Case, stage: Stage) -> tuple[str, str]:
    """Return advice on a stage that mostly waits, which a faster decoder would not help."""
    if case.evidence.loader.own_workers:
        return (
            f"Speed up the workers inside the dataset: {stage.name} waits for them",
            "give the loader inside the dataset more workers, by the dataset's own option (such as TorchIO's "
            "Queue(num_workers=...)), up to the number of cores",
        )
    if not case.has_loader:  # waiting for storage and waiting for its own threads look the same
        return (
            "Speed up the source of the batches: the loop waits for it",
            "if its own threads or processes make them, give it more of these by its own option, up to the number of "
            "cores; otherwise read ahead, from a local disk",
        )
    if stage.name not in LOADING:
        how = "look for locks, sleeps, other processes and the network in it (py-spy dump --pid PID of a worker)"
        more = more_at_once(case, "; while it waits, more workers help: try {setting}")
        return f"Find out what {stage.name} waits for", how + more
    how = more_at_once(case, "a worker that waits takes no core: try {setting}; ")
    how += f"{_TOGETHER}; " if case.evidence.loader.fetches_batches is False and not reads_at_limit(case) else ""
    how += "keep the data on a local disk, in shards of many samples (tar files, WebDataset) instead of one file each"
    if stage.name == FETCH:
        how += '; mark its parts with @bottleneck.stage("read") and so on, to see which of them waits'
    return "Wait less for storage or the network", how


def _spent(stage: Stage, waiting: float | None) -> str:
    """Return a sentence on how the stage passes its time; empty if it says nothing of use."""
    if waiting is None:
        return ""
    if waiting > MOSTLY:
        return f" It is waiting {percent(waiting)} of its time, and computes for the rest."
    return f" It computes for {percent(1 - waiting)} of its time." if stage.name in LOADING else ""


@rule("faster-step")
def _faster_step(case: Case) -> Iterator[Suggestion]:
    """Advise work on the train step if that limits the job, and to leave the input pipeline alone."""
    if case.verdict.state != "device_bound" or case.lost is None or case.is_slow_over_epochs:
        return
    yield Suggestion(
        stage=COMPUTE,
        title="Leave the input pipeline alone; make the train step faster",
        why=f"The step takes {duration(case.device_s)} of {duration(case.step_s)} a batch; free input would "
        f"save {percent_interval(case.lost)} of it.",
        how="model = torch.compile(model); torch.autocast for matrix products; a larger batch",
        evidence={"device_s_per_batch": case.device_s, "step_s": case.step_s},
        fallback=True,
    )


# --- workers that start again, and single slow batches -------------------------------------------------------

_EPOCH_GAP_WORTH_CLOSING = 0.05
_STALLS_WORTH_CURING = 0.05
"""Part of the job's time that stalls take."""
_MIN_STALLS = 5
"""Fewer may be a disturbance of the machine."""
_FAR_OVER = 3.0
"""The long waits over the usual one."""
_COLD_GAIN = 1.1


@rule("persistent-workers")
def _keep_workers(case: Case) -> Iterator[Suggestion]:
    """Advise persistent workers if starting them takes a real part of each epoch."""
    epoch = case.epoch
    if not case.workers or case.pipeline.get("persistent_workers") is not False:
        return
    if epoch is None or not case.loader_s or epoch.start_s <= _EPOCH_GAP_WORTH_CLOSING * epoch.seconds:
        return
    first_s = epoch.first_batch_s + epoch.order_s
    waits_s = epoch.start_s + first_s
    yield Suggestion(
        title="Keep the workers from one epoch to the next",
        why=f"The first batch of an epoch takes {duration(waits_s)}, because the workers restart, and would take "
        f"about {duration(first_s)} with workers that stay. The rest is {percent(epoch.start_s / epoch.seconds)} of "
        f"an epoch of {duration(epoch.seconds)}.",
        how="DataLoader(..., persistent_workers=True)",
        evidence={
            "proposed": {"persistent_workers": True},
            "first_batch_s": waits_s,
            "first_batch_of_kept_workers_s": first_s,
            "epoch_s": epoch.seconds,
        },
        gain=epoch.gain_of_kept_workers,
    )


@rule("uneven-samples")
def _uneven_samples(case: Case) -> Iterator[Suggestion]:
    """Advise a queue that evens out single slow batches if the job really waits for those."""
    waits, stalls = case.evidence.wait_s, case.evidence.stalls
    usual_s, p95_s, p99_s, lost = waits.p50, waits.p95, waits.p99, stalls.lost_share
    if usual_s is None or p95_s is None or p99_s is None or p99_s < _FAR_OVER * usual_s:
        return
    if max(case.collecting_share, case.evidence.collections.share or 0.0) >= MUCH_COLLECTING:  # these are the waits
        return
    if reads_at_limit(case):  # a longer queue is filled no faster
        return
    # The main process waits where the device may have work left: only a loss says that the device waits as well.
    if case.verdict.state == "device_bound" or (case.on_accelerator and not case.input_bound):
        return
    if stalls.count is None or stalls.count < _MIN_STALLS or lost is None or not _STALLS_WORTH_CURING <= lost < 1:
        return
    every = f", one every {number(stalls.period_batches)} batches" if stalls.period_batches else ""
    yield Suggestion(
        title="Smooth out occasional slow batches",
        why=f"Half of the waits for a batch take at most {duration(usual_s)}, one in twenty {duration(p95_s)} or "
        f"longer, one in a hundred {duration(p99_s)}. {number(stalls.count)} waits far above the usual{every} take "
        f"{percent(lost)} of the {'main process' if case.on_accelerator else 'job'}'s time.",
        how=_how_to_even_out(case),
        evidence={
            "wait_p50_s": usual_s,
            "wait_p95_s": p95_s,
            "wait_p99_s": p99_s,
            "stalls": stalls.count,
            "lost_share": lost,
            "period_batches": stalls.period_batches,
        },
        gain=case.at_most_headroom(1 / (1 - lost)),
    )


def _how_to_even_out(case: Case) -> str:
    longer = int(2 * (case.number("prefetch_factor") or 2))
    bucket = "put samples of similar size into one batch, so that all batches take about as long"
    if not case.has_loader:
        return f"{bucket}, and let a thread or a process prepare batches ahead"
    if case.evidence.loader.own_workers:
        return "let the workers inside the dataset, and the queue that it fills, keep more in stock than one refill"
    if case.workers < 1:
        return f"{bucket}; the prefetch queue of workers evens out slow samples too, if workers help"
    queue = f"DataLoader(..., prefetch_factor={longer}), if memory allows; {bucket}"
    version = [int(part) for part in re.findall(r"\d{1,4}", str(case.environment.get("torch", "")))]
    if case.workers > 1 and case.pipeline.get("in_order") is True and version >= [2, 6]:  # which has in_order=False
        return f"DataLoader(..., in_order=False), so that no batch waits for a slow one asked for before it; {queue}"
    return queue


# --- storage ----------------------------------------------------------------------------------------------

_WHICH_EPOCHS = {
    True: "The dataset fits into memory, so this concerns the first epoch only.",
    False: "The dataset does not fit into memory, so every epoch reads from the disk.",
    None: "This concerns the first epoch, and every epoch if the dataset does not fit into memory.",
}


@rule("cold-storage")
def _cold_storage(case: Case) -> Iterator[Suggestion]:
    """Advise faster or nearer storage if files that were dropped from memory cost the job real time."""
    storage = next((stage for stage in case.stages if stage.outer == COLD), None)
    if storage is None or not case.evidence.cold.verified or storage.finding != "real":
        return
    free, cost = storage.gain_if_free, storage.exposed_s_per_batch
    if free is None or cost is None or free.low < _COLD_GAIN:
        return
    fits = fits_in_memory(case.evidence, case.pipeline, case.environment)
    yield Suggestion(
        stage=storage.name,
        title="Move the data to faster storage",
        why=f"Reading from the disk adds {duration(cost.estimate)} a batch; with the files in memory the job has "
        f"{gain_interval(free)} the throughput. {_WHICH_EPOCHS[fits]}",
        how="copy the data to a local disk beforehand, in shards of many samples (WebDataset, litdata)"
        + more_at_once(case, "; more workers keep more reads under way: try {setting}"),
        evidence={"exposed_s_per_batch": cost.estimate, "gain": free.estimate, "dataset_fits_in_memory": fits},
        # What the job gains is that only where each of its epochs reads from the disk.
        frees_stage=fits is False,
    )


RULES = (_measure_longer, _stages_that_hold_the_job, _faster_step, _keep_workers, _uneven_samples, _cold_storage)
