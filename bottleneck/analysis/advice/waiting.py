"""What to do about waiting: for workers that start again, for single slow samples, and for storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bottleneck.analysis.advice.case import Case, Suggestion, rule
from bottleneck.analysis.advice.workers import more_at_once
from bottleneck.analysis.parts import waiting_share
from bottleneck.analysis.settings import fits_in_memory, raw_source, reads_of
from bottleneck.results.format import count, duration, gain_interval, number, percent, size
from bottleneck.results.names import COLD, LOADING, RAW
from bottleneck.results.records import Stage

_EPOCH_GAP_WORTH_CLOSING = 0.05
_STALLS_WORTH_CURING = 0.05
"""Part of the job's time that stalls take."""
_FEWEST_STALLS = 5
"""Fewer may be a disturbance of the machine."""
_FAR_OVER = 3.0
"""The long waits over the usual one."""
_OUT_OF_ORDER_SINCE = (2, 6)
"""PyTorch with `in_order=False`."""
_WAITING = 0.2
"""Part of a stage's time that is waiting, from which on storage is worth a word."""
_COLD_GAIN = 1.1
_SMALL_BYTES = 256 * 1024
"""What a disk reads in the time that it takes to begin another file, or less."""


@rule("persistent-workers")
def _keep_workers(case: Case) -> Iterator[Suggestion]:
    """Advise persistent workers where starting them takes a real part of each epoch."""
    epoch = case.epoch
    if not case.workers or case.pipeline.get("persistent_workers") is not False:
        return
    if epoch is None or not case.loader_s or epoch.start_s <= _EPOCH_GAP_WORTH_CLOSING * epoch.seconds:
        return
    first_s = epoch.first_batch_s + epoch.order_s
    waits_s = epoch.start_s + first_s
    yield Suggestion(
        title="Keep the workers from one epoch to the next",
        why=f"The first batch of an epoch takes {duration(waits_s)}, because the workers start anew, and would take "
        f"about {duration(first_s)} of workers that stay. The rest is {percent(epoch.start_s / epoch.seconds)} of "
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
    """Advise a queue that evens out single slow batches, where the job really waits for those."""
    waits, stalls = case.evidence.wait_s, case.evidence.stalls
    usual_s, p95_s, p99_s, lost = waits.p50, waits.p95, waits.p99, stalls.lost_share
    if usual_s is None or p95_s is None or p99_s is None or p99_s < _FAR_OVER * usual_s:
        return
    # The main process waits where the device may have work left: only a loss says that the device waits as well.
    if case.verdict.state == "device_bound" or (case.on_accelerator and not case.input_bound):
        return
    if stalls.count is None or stalls.count < _FEWEST_STALLS or lost is None or not _STALLS_WORTH_CURING <= lost < 1:
        return
    every = f", one every {number(stalls.period_batches)} batches" if stalls.period_batches else ""
    yield Suggestion(
        title="Even out single slow batches",
        why=f"Half of the batches are waited for {duration(usual_s)} at most, one in twenty {duration(p95_s)} or "
        f"longer, one in a hundred {duration(p99_s)}. {number(stalls.count)} waits far over the usual{every} take "
        f"{percent(lost)} of the {'main process' if case.on_accelerator else 'job'}'s time.",
        how=_how_to_even_out(case),
        evidence={
            "wait_p50_s": usual_s, "wait_p95_s": p95_s, "wait_p99_s": p99_s, "stalls": stalls.count,
            "lost_share": lost, "period_batches": stalls.period_batches,
        },
        gain=case.at_most_headroom(1 / (1 - lost)),
    )  # fmt: skip


def _how_to_even_out(case: Case) -> str:
    longer = int(2 * (case.number("prefetch_factor") or 2))
    bucket = "sort samples of like size into one batch, so that all batches take alike"
    if not case.has_loader:
        return f"{bucket}, and let a thread or a process keep some batches ahead"
    if case.evidence.loader.own_workers:
        return "let the workers within the dataset, and the queue that it fills, have more in store than one refill"
    if case.workers < 1:
        return f"{bucket}; the queue of workers evens out slow samples too, where workers are of use"
    queue = f"DataLoader(..., prefetch_factor={longer}), as far as memory allows; {bucket}"
    if case.workers > 1 and case.pipeline.get("in_order") is True and _torch_version(case) >= _OUT_OF_ORDER_SINCE:
        return f"DataLoader(..., in_order=False), so that no batch waits for a slow one asked for before it; {queue}"
    return queue


def _torch_version(case: Case) -> tuple[int, int]:
    parts = str(case.environment.get("torch", "")).split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else (0, 0)


# --- storage ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SlowStorage:
    """Storage that costs the job, or its first epoch, real time."""

    stage: Stage
    frees_stage: bool
    """As in `Suggestion`; False where only the first epoch reads from the disk."""
    why: str
    evidence: dict[str, Any]


def _find_slow_storage(case: Case) -> _SlowStorage | None:
    """What storage costs: as measured with cold files, or else as observed in the job as it is."""
    storage = next((stage for stage in case.stages if stage.outer == COLD), None)
    if storage is not None:
        return _measured(case, storage) if case.evidence.cold.verified else None
    stage = case.holding(*LOADING)
    if stage is None or raw_source(case.evidence) != "disk":
        return None
    waiting = waiting_share(stage, case.evidence)
    read = reads_of(case.evidence, RAW).storage_bytes_per_sample
    if waiting is None or waiting < _WAITING or read is None:
        return None
    why = (
        f"{stage.name} reads {size(read)} a sample from the disk, and is waiting {percent(waiting)} of its time. To "
        "compare with files in memory, diagnose again with --cold."
    )
    return _SlowStorage(stage, True, why, {"storage_bytes_per_sample": read, "waiting_share": waiting})


_WHICH_EPOCHS = {
    True: "The dataset fits into memory, so that this is the first epoch only.",
    False: "The dataset does not fit into memory, so that every epoch reads from the disk.",
    None: "It holds for the first epoch, and for every one if the dataset does not fit into memory.",
}


def _measured(case: Case, storage: Stage) -> _SlowStorage | None:
    gain, cost = storage.gain_if_free, storage.exposed_s_per_batch
    if gain is None or cost is None or gain.low < _COLD_GAIN or storage.finding != "real":
        return None
    fits = fits_in_memory(case.evidence, case.pipeline, case.environment)
    why = (
        f"Reading from the disk adds {duration(cost.estimate)} a batch; found in memory, files give "
        f"{gain_interval(gain)} the throughput. {_WHICH_EPOCHS[fits]}"
    )
    evidence = {"exposed_s_per_batch": cost.estimate, "gain": gain.estimate, "dataset_fits_in_memory": fits}
    # What the job gains is that only where each of its epochs reads from the disk.
    return _SlowStorage(storage, fits is False, why, evidence)


@rule("cold-storage")
def _cold_storage(case: Case) -> Iterator[Suggestion]:
    """Advise faster or nearer storage where the job reads from the disk and waits for it."""
    slow = _find_slow_storage(case)
    if slow is None:
        return
    yield Suggestion(
        stage=slow.stage.name,
        title="Bring the data nearer to the job",
        why=slow.why,
        how="copy the data to a local disk beforehand, in shards of many samples (WebDataset, litdata)"
        + more_at_once(case, "; more workers keep more reads under way: try {setting}"),
        evidence=slow.evidence,
        frees_stage=slow.frees_stage,
    )


@rule("small-files")
def _small_files(case: Case) -> Iterator[Suggestion]:
    """Advise shards where storage is slow and gives a file of a few bytes for each sample."""
    slow = _find_slow_storage(case)
    if slow is None:
        return
    cold = case.evidence.cold
    files, held, samples = cold.files, cold.bytes, cold.samples
    if files and held is not None and samples:
        each, of_each, evidence = held / files, files / samples, {"bytes_per_file": held / files}
        what = f"Its samples read {count(of_each)} files each, of {size(each)} on average."
    else:
        row = reads_of(case.evidence, RAW)
        calls, asked = row.calls_per_sample, row.asked_bytes_per_sample
        if not calls or asked is None:
            return
        each, of_each, evidence = asked, calls, {"bytes_per_sample": asked, "calls_per_sample": calls}
        what = f"A sample asks for {size(asked)}, in {count(calls)} calls."
    if each >= _SMALL_BYTES or of_each < 0.5:
        return
    yield Suggestion(
        stage=slow.stage.name,
        title="Read many samples at once instead of a small file each",
        why=f"{what} {slow.why}",
        how="pack the samples into shards that are read from beginning to end: webdataset.ShardWriter, "
        "litdata.optimize, or one HDF5 or Parquet file with many samples a row group",
        evidence={**slow.evidence, **evidence},
        frees_stage=slow.frees_stage,
    )


RULES = (_keep_workers, _uneven_samples, _cold_storage, _small_files)
