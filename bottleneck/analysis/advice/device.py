"""Advice on the train step if it limits the job, and on the device and shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bottleneck.analysis.advice.case import Case, Suggestion, rule
from bottleneck.analysis.advice.workers import batch_room_bytes
from bottleneck.analysis.edits.edits import STEP_THREADS
from bottleneck.analysis.settings import number as number_in
from bottleneck.analysis.settings import raw_usage
from bottleneck.results.format import duration, number, percent, plural, size
from bottleneck.results.names import COMPUTE, DEVICE
from bottleneck.results.warnings.job import fitting_threads

# --- the train step -----------------------------------------------------------------------------------------


_VOLTA, _AMPERE = 7, 8
_BUSY = 0.8
"""Share of a step above which the device is assumed to limit it; below it, the host does."""
_PRODUCTS_SHARE = 0.1
"""The part of a step that products and convolutions take at least."""
_SAVED_IN_16_BITS = 2 / 3
"""Part of the time of products and convolutions, at most. Tensor cores do twice as many of 16 bits as of TF32, and many
times as many as of float32 (NVIDIA, 'Ampere Architecture whitepaper'), and so do processors with units for them; memory
in the way leaves less. A network for point clouds on such a processor saved this part."""
_MIN_WAITS = 0.5
"""For each step; rarer ones come from logging every N steps."""
_WORTH_GAIN = 1.01
"""A gain below it is not worth a word."""


@rule(STEP_THREADS)
def _step_threads(case: Case) -> Iterator[Suggestion]:
    """Advise as many threads as cores for a step on the CPU: each operation waits for a thread without a core."""
    threads, cores = number_in(case.environment, "torch_threads"), case.evidence.utilisation.cores.usable
    if not case.on_cpu or not cores or threads is None or threads <= math.ceil(cores):
        return
    workers, there = round(case.workers), "1 core" if cores == 1 else f"{cores:g} cores"
    wanted, beside = fitting_threads(workers, cores), f" beside {plural(workers, 'worker')}" if workers else ""
    yield Suggestion(
        stage=COMPUTE,
        title=f"Let PyTorch compute with {plural(wanted, 'thread')}, not {threads:.0f}",
        why=f"The train step computes with {threads:.0f} threads on {there}{beside}: in each operation, the "
        "threads that have a core wait for those that have none, which can take several times as long.",
        how=f"torch.set_num_threads({wanted})",
        evidence={"torch_threads": threads, "usable_cores": cores},
        cause=True,
    )


@rule("mixed-precision")
def _mixed_precision(case: Case) -> Iterator[Suggestion]:
    """Advise autocast if no product is of 16 bits, on a device that has faster ones of them."""
    model, busy, share = case.evidence.model, _busy_share(case), _products_share(case)
    if case.verdict.state != "device_bound" or share < _PRODUCTS_SHARE or not (case.on_cpu or (busy or 0.0) >= _BUSY):
        return
    major = (model.device_capability or (0, 0))[0]
    if set(model.computed_dtypes or {}) != {"float32"} or not (major >= _VOLTA or model.cpu_bfloat16):
        return
    kind = "cpu" if case.on_cpu else "cuda"
    small = "bfloat16" if case.on_cpu or major >= _AMPERE else "float16"
    scaler = "" if small == "bfloat16" else "; scale the loss with torch.amp.GradScaler()"
    products_s = share * case.device_s
    saved_s = _SAVED_IN_16_BITS * products_s
    # No more than the loader can supply.
    gain = case.step_s / max(case.step_s - saved_s, case.loader_s, 0.05 * case.step_s)
    if gain < _WORTH_GAIN:
        return
    yield Suggestion(
        stage=COMPUTE,
        title="Compute in mixed precision",
        why=f"Matrix products and convolutions take {duration(products_s)} of each {duration(case.device_s)} step "
        f"({percent(share)}), all of them in float32. The gain is an estimate that assumes {small} saves a third "
        "of that.",
        how=f'with torch.autocast("{kind}", dtype=torch.{small}): loss = loss_fn(model(inputs), targets){scaler}',
        evidence={"products_s_per_step": products_s, "step_s": case.device_s, "saved_s_per_step": saved_s},
        gain=gain,
    )


def _products_share(case: Case) -> float:
    """Return the part of a step that matrix products and convolutions take; 0 if no step was traced."""
    trace = case.evidence.trace.device
    # The profiler slows all that a CPU does, and little of what a device does.
    whole_s = trace.seconds_per_step if case.on_cpu else case.device_s
    return 0.0 if not whole_s or whole_s <= 0 else min(1.0, (trace.products_s_per_step or 0.0) / whole_s)


def _busy_share(case: Case) -> float | None:
    """Return the part of a step in which the device computes; None on the CPU, or if no step was traced."""
    busy_s = case.evidence.trace.device.device_busy_s_per_step
    return None if busy_s is None or case.device_s <= 0 else busy_s / case.device_s


@rule("step-synchronises")
def _synchronises(case: Case) -> Iterator[Suggestion]:
    """Advise fewer waits for the device if it then waits for the host; the gain cannot be known in advance."""
    busy, seen = _busy_share(case), case.evidence.trace.device.synchronisations
    waits = [wait for wait in seen if (wait.calls_per_step or 0.0) >= _MIN_WAITS]
    if case.verdict.state != "device_bound" or busy is None or busy >= _BUSY or not waits:
        return
    calls, busy_s = sum(wait.calls_per_step or 0.0 for wait in waits), busy * case.device_s
    places = ", ".join((wait.name or "")[:80] for wait in waits[:3])
    yield Suggestion(
        stage=COMPUTE,
        title="Do not wait for the device in every step",
        why=f"The train step waits for the device {number(calls, 0 if calls >= 9.5 else 1)} times ({places}), and the "
        f"device computes for only {duration(busy_s)} of each {duration(case.device_s)} step.",
        how="log every N steps: total += loss.detach(), and total.item() when step % 50 == 0; the same for "
        "loss.item(), .cpu(), .nonzero() and if tensor:",
        evidence={"waits_per_step": calls, "device_busy_s_per_step": busy_s, "step_s": case.device_s},
    )


# --- shared memory and the device ---------------------------------------------------------------------------


_SHM_SHARE = 0.8
_CLOCK_SHARE = 0.9
_THROTTLING = ("power", "heat", "hardware slowdown", "clocks set by the user")


@rule("shared-memory-full")
def _shared_memory(case: Case) -> Iterator[Suggestion]:
    """Advise more shared memory if the batches in flight nearly fill it, or could."""
    shared = case.evidence.utilisation.shared_memory
    held, peak, needed = shared.size_bytes, shared.peak_used_bytes or 0, batch_room_bytes(case, case.workers)
    if not held or held <= 0 or not case.workers or not (peak > _SHM_SHARE * held or (needed or 0) > held):
        return
    workers = plural(round(case.workers), "worker")
    queue = f"; the prefetched batches of {workers} take up to {size(needed)}" if needed else ""
    gib = math.ceil(2 * max(peak, needed or 0) / 2**30)
    yield Suggestion(
        title="Give the workers more shared memory, or prefetch fewer batches",
        why=f"/dev/shm has {size(held)}, of which {size(peak)} were in use{queue}. A worker that finds it full is "
        "killed by a bus error.",
        how=f"docker run --shm-size={gib}g (or --ipc=host), mount -o remount,size={gib}G /dev/shm; else "
        "DataLoader(..., prefetch_factor=1) or fewer workers",
        evidence={"shm_size_bytes": held, "peak_used_bytes": peak, "batches_in_flight_bytes": needed},
    )


@rule("gpu-throttled")
def _gpu_throttled(case: Case) -> Iterator[Suggestion]:
    """Advise to check a device that limits the job at a lower clock than it can run at."""
    usage = raw_usage(case.evidence, DEVICE) or raw_usage(case.evidence)
    if usage is None or case.input_bound:
        return
    clock, most = usage.gpu.sm_clock_hz, usage.gpu.max_sm_clock_hz
    reasons = [reason for reason in _THROTTLING if reason in usage.gpu.throttled]
    if not reasons or not clock or not most or not 0 < clock < _CLOCK_SHARE * most:
        return
    yield Suggestion(
        stage=COMPUTE,
        title="Check why the device is throttled",
        why=f"It ran at {number(clock / 1e6)} of {number(most / 1e6)} MHz, throttled by {' and '.join(reasons)}. A "
        "step that computes all the time would gain as much at most.",
        how="nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE,CLOCK; better cooling, a higher limit with "
        "nvidia-smi -pl WATTS, or nvidia-smi -rac and -rgc if the clocks were set by hand",
        evidence={"sm_clock_hz": clock, "max_sm_clock_hz": most, "throttled": reasons},
        gain=most / clock,
    )


@rule("gpu-shared")
def _gpu_shared(case: Case) -> Iterator[Suggestion]:
    """Advise exclusive use of the device if other processes use it and it limits the job."""
    others = case.evidence.utilisation.gpu_other_processes
    if case.input_bound or not others:
        return
    device = str(case.environment.get("device_name") or case.device)
    yield Suggestion(
        stage=COMPUTE,
        title="Train on a device that no other process uses",
        why=f"{others} other {'process' if others == 1 else 'processes'} had work or memory on the {device} while it "
        "was measured, and share it with this job.",
        how="nvidia-smi shows them; CUDA_VISIBLE_DEVICES=N python ... chooses another device",
        evidence={"gpu_other_processes": others},
    )


RULES = (_step_threads, _mixed_precision, _synchronises, _shared_memory, _gpu_throttled, _gpu_shared)
