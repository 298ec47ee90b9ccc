"""What follows from memory, shared memory and the device: what fills up, and what is held down or shared."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bottleneck.analysis.advice.rule import Case, Suggestion, rule
from bottleneck.analysis.advice.worker_room import batch_room_bytes
from bottleneck.analysis.saturation import raw_usage
from bottleneck.results.format import number, plural, size
from bottleneck.results.names import COMPUTE, DEVICE

_EPOCH_SHARE = 0.1
"""The share of the free memory that workers may gain in an epoch, or in an hour where an epoch is unknown."""
_LEAST_GROWTH_BYTES_PER_S = 1 << 20
_HOUR_S = 3600.0
_SHM_SHARE = 0.8
_CLOCK_SHARE = 0.9
_THROTTLING = ("power", "heat", "hardware slowdown", "clocks set by the user")


@rule("memory-growth")
def _memory_growth(case: Case) -> Iterator[Suggestion]:
    """Advise arrays instead of objects where the private memory of the workers climbs at a rate that matters."""
    usage, free = case.evidence.utilisation.workers, case.free_memory_bytes
    growth = usage.private_growth_bytes_per_s
    if growth is None or free is None:
        return
    surely = growth - 2 * (usage.private_growth_error_bytes_per_s or 0.0)
    epoch_s = _epoch_s(case)
    if surely < _LEAST_GROWTH_BYTES_PER_S or surely * (epoch_s or _HOUR_S) < _EPOCH_SHARE * free:
        return
    yield Suggestion(
        title="Keep what the dataset holds in arrays: the workers' memory climbs",
        why=f"The private memory of the workers grows by {size(growth)} a second; the free "
        f"{size(free)} would be used up in {_time(free / growth)}. Reading a Python object changes its "
        "reference count, so that each worker gets a copy of its own of what it shared with the main process.",
        how="self.paths = np.array(paths); self.labels = np.array(labels), in place of lists and dicts of objects; "
        "a pandas or pyarrow column of strings for long texts",
        evidence={"private_growth_bytes_per_s": growth, "memory_available_bytes": free, "epoch_s": epoch_s},
    )


def _epoch_s(case: Case) -> float | None:
    length, batch_size = case.number("dataset_length"), case.number("batch_size")
    return length / batch_size * case.step_s if length and batch_size else None


def _time(seconds: float) -> str:
    return f"{number(seconds / _HOUR_S, 1)} hours" if seconds >= _HOUR_S else f"{number(seconds / 60, 0)} minutes"


@rule("shared-memory-full")
def _shared_memory(case: Case) -> Iterator[Suggestion]:
    """Advise more shared memory where the batches in flight nearly fill it, or could."""
    shared = case.evidence.utilisation.shared_memory
    held, peak = shared.size_bytes, shared.peak_used_bytes
    if not held or held <= 0 or not case.workers:
        return
    needed = batch_room_bytes(case, case.workers)
    if not ((peak or 0) > _SHM_SHARE * held or (needed or 0) > held):
        return
    queue = (
        f"; the batches in flight of {plural(round(case.workers), 'worker')} take up to {size(needed)}"
        if needed
        else ""
    )
    gib = math.ceil(2 * max(peak or 0, needed or 0) / 2**30)
    yield Suggestion(
        title="Give the workers more shared memory, or let fewer batches be in flight",
        why=f"/dev/shm holds {size(held)}, of which {size(peak or 0)} were in use{queue}. A "
        "worker that finds it full dies of a bus error.",
        how=f"docker run --shm-size={gib}g (or --ipc=host), mount -o remount,size={gib}G /dev/shm; else "
        "DataLoader(..., prefetch_factor=1) or fewer workers",
        evidence={"shm_size_bytes": held, "peak_used_bytes": peak, "batches_in_flight_bytes": needed},
    )


@rule("gpu-throttled")
def _gpu_throttled(case: Case) -> Iterator[Suggestion]:
    """Advise to look after a device that holds the job at a lower clock than it can."""
    usage = raw_usage(case.evidence, DEVICE) or raw_usage(case.evidence)
    if usage is None or case.input_bound:
        return
    clock, most = usage.gpu.sm_clock_hz, usage.gpu.max_sm_clock_hz
    reasons = [reason for reason in _THROTTLING if reason in usage.gpu.throttled]
    if not reasons or not clock or not most or not 0 < clock < _CLOCK_SHARE * most:
        return
    yield Suggestion(
        stage=COMPUTE,
        title="See what holds the clocks of the device down",
        why=f"It ran at {number(clock / 1e6)} of {number(most / 1e6)} MHz, held down by {' and '.join(reasons)}. A "
        "step that computes all the time would be faster by as much at the most.",
        how="nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE,CLOCK; better cooling, a higher limit with "
        "nvidia-smi -pl WATTS, or nvidia-smi -rac and -rgc where someone has set the clocks",
        evidence={"sm_clock_hz": clock, "max_sm_clock_hz": most, "throttled": reasons},
        gain=most / clock,
    )


@rule("gpu-shared")
def _gpu_shared(case: Case) -> Iterator[Suggestion]:
    """Advise to have the device alone where others use it and it is what holds the job."""
    others = case.evidence.utilisation.gpu_other_processes
    if case.input_bound or not others:
        return
    processes = "process" if others == 1 else "processes"
    device = str(case.environment.get("device_name") or case.device)
    yield Suggestion(
        stage=COMPUTE,
        title="Train on a device that nobody else uses",
        why=f"{others} other {processes} had work or memory on the {device} while it was measured; they take "
        "turns with this job.",
        how="nvidia-smi shows them; CUDA_VISIBLE_DEVICES=N python ... chooses another device",
        evidence={"gpu_other_processes": others},
    )


RULES = (_memory_growth, _shared_memory, _gpu_throttled, _gpu_shared)
