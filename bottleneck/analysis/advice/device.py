"""What to do about the train step where it holds the job, and about memory and the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from bottleneck.analysis.advice.case import Case, Suggestion, rule
from bottleneck.analysis.advice.workers import batch_room_bytes
from bottleneck.analysis.saturation import raw_usage
from bottleneck.results.evidence import ModelFacts, TracedSteps
from bottleneck.results.format import duration, number, percent, plural, size
from bottleneck.results.names import COMPUTE, DEVICE

# --- the train step -----------------------------------------------------------------------------------------


_VOLTA, _AMPERE = 7, 8
_BUSY = 0.8
"""The share of a step from which on the device is taken to be what limits it; below it, the host is."""
_LAUNCH_S = 5e-6
"""What it takes the host to call an operator and to launch its kernel, roughly: a few microseconds for the launch
(NVIDIA, 'Getting Started with CUDA Graphs'), and PyTorch's dispatch on top."""
_LAUNCHING_SHARE = 0.2
"""The part of a step that launches take at least before fewer of them are worth advice."""
_FUSED_AWAY = 0.5
"""The part of the operators that a compiler fuses with others: those between matrix products."""
_PRODUCTS_SHARE = 0.1
"""The part of a step that products and convolutions take at least."""
_SAVED_IN_16_BITS = 1 / 3
"""Of the time of products and convolutions. Tensor cores do twice as many of 16 bits as of TF32, and many times as
many as of float32 (NVIDIA, 'Ampere Architecture whitepaper'); a third is what remains of it with memory in the way."""
_FEWEST_WAITS = 0.5
"""For each step; rarer ones come from logging every N steps."""
_WORTH_GAIN = 1.01
"""A gain below it is not worth a word."""


@dataclass(frozen=True)
class _Step:
    """A traced step of a device-bound job, with free input."""

    case: Case
    trace: TracedSteps
    model: ModelFacts
    step_s: float
    """Without the profiler."""
    busy_s: float | None
    """The part in which the device computes; None where the CPU trains, or without events of the device."""

    @property
    def device_limits(self) -> bool:
        """Whether work on the device, or on the CPU where that trains, is what a step takes its time for."""
        return self.case.on_cpu or (self.busy_s is not None and self.busy_s >= _BUSY * self.step_s)

    @property
    def host_limits(self) -> bool:
        """Whether the device waits for the host to ask for work."""
        return self.busy_s is not None and self.busy_s < _BUSY * self.step_s

    def gain(self, saved_s: float) -> float:
        """What the job gains when a step takes less, but not more than the loader can supply."""
        least_s = max(self.case.step_s - saved_s, self.case.loader_s, 0.05 * self.case.step_s)
        return max(1.0, self.case.step_s / least_s)

    @property
    def products_s(self) -> float:
        """What matrix products and convolutions take. On a CPU in proportion, since the profiler slows all of it."""
        traced_s = self.trace.products_s_per_step or 0.0
        if self.case.on_cpu:
            traced_s *= self.step_s / (self.trace.seconds_per_step or self.step_s)
        return min(traced_s, self.step_s)


def _step(case: Case) -> _Step | None:
    """What is known of the step; None where it does not hold the job, or was not traced."""
    trace = case.evidence.trace.device
    traced_s = trace.seconds_per_step
    if case.verdict.state != "device_bound" or not traced_s or traced_s <= 0 or case.device_s <= 0:
        return None
    return _Step(case, trace, case.evidence.model, case.device_s, trace.device_busy_s_per_step)


@rule("mixed-precision")
def _mixed_precision(case: Case) -> Iterator[Suggestion]:
    """Advise autocast where no product is of 16 bits, on a device that has faster ones of them."""
    step = _step(case)
    if step is None or not step.device_limits or step.products_s < _PRODUCTS_SHARE * step.step_s:
        return
    major, types = (step.model.device_capability or (0, 0))[0], step.model.computed_dtypes or {}
    if set(types) != {"float32"} or not (major >= _VOLTA or step.model.cpu_bfloat16):
        return
    kind = "cpu" if case.on_cpu else "cuda"
    small = "bfloat16" if case.on_cpu or major >= _AMPERE else "float16"
    scaler = "" if small == "bfloat16" else "; scale the loss with torch.amp.GradScaler()"
    saved_s = _SAVED_IN_16_BITS * step.products_s
    gain = step.gain(saved_s)
    if gain < _WORTH_GAIN:
        return
    yield Suggestion(
        stage=COMPUTE,
        title="Compute in mixed precision",
        why=f"Matrix products and convolutions take {duration(step.products_s)} of each {duration(step.step_s)} step "
        f"({percent(step.products_s / step.step_s)}), and all of them are in float32. The gain is an estimate: that "
        f"{small} saves a third of that.",
        how=f'with torch.autocast("{kind}", dtype=torch.{small}): loss = loss_fn(model(inputs), targets){scaler}',
        evidence={"products_s_per_step": step.products_s, "step_s": step.step_s, "saved_s_per_step": saved_s},
        gain=gain,
    )


@rule("compile")
def _compile(case: Case) -> Iterator[Suggestion]:
    """Advise torch.compile where launching many small kernels takes a real part of the step."""
    step = _step(case)
    if step is None or step.busy_s is None or not step.host_limits or step.model.compiled is not False:
        return
    launches = step.trace.launches_per_step or 0.0
    saved_s = min(_FUSED_AWAY * launches * _LAUNCH_S, step.step_s - step.busy_s)
    gain = step.gain(saved_s)
    if launches * _LAUNCH_S < _LAUNCHING_SHARE * step.step_s or gain < _WORTH_GAIN:
        return
    yield Suggestion(
        stage=COMPUTE,
        title="Compile the model, which fuses small operators",
        why=f"A step of {duration(step.step_s)} launches {number(launches)} kernels, each of which takes the host "
        f"about {duration(_LAUNCH_S)}, and nothing is compiled. The gain is an estimate: that half of them are fused "
        "with others.",
        how='model = torch.compile(model); with mode="reduce-overhead" where all batches have one shape',
        evidence={"launches_per_step": launches, "step_s": step.step_s, "saved_s_per_step": saved_s},
        gain=gain,
    )


@rule("larger-batch")
def _larger_batch(case: Case) -> Iterator[Suggestion]:
    """Advise twice the batch where the device has time and memory for it."""
    step, batch_size = _step(case), case.number("batch_size")
    if step is None or not step.host_limits or step.busy_s is None or batch_size is None:
        return
    model = step.model
    peak, total, free = model.peak_device_bytes, model.device_bytes, model.device_free_bytes
    # Twice of everything, of the parameters too, would still fit.
    if peak is None or total is None or free is None or peak <= 0 or peak > min(total - peak, free):
        return
    # A step with twice the batch takes as long as before, or what the device then needs.
    gain = step.gain(step.step_s - max(2 * step.busy_s, step.step_s) / 2)
    if gain < _WORTH_GAIN:
        return
    yield Suggestion(
        stage=COMPUTE,
        title=f"Raise the batch size from {batch_size:.0f} to {2 * batch_size:.0f}",
        why=f"The device computes for {duration(step.busy_s)} of each {duration(step.step_s)} step, and at most "
        f"{size(peak)} of its {size(total)} were in use. The gain is an estimate: that the host needs no "
        "longer for twice the samples. The learning rate may have to change with it.",
        how=case.loader_with(f"batch_size={2 * batch_size:.0f}"),
        evidence={
            "proposed": {"batch_size": int(2 * batch_size)},
            "device_busy_s_per_step": step.busy_s,
            "peak_device_bytes": peak,
            "device_bytes": total,
            "step_s": step.step_s,
        },
        gain=gain,
    )


@rule("step-synchronises")
def _synchronises(case: Case) -> Iterator[Suggestion]:
    """Advise fewer waits for the device where it then waits for the host; what that gains is not known before."""
    step = _step(case)
    if step is None or not step.host_limits or step.busy_s is None:
        return
    waits = [wait for wait in step.trace.synchronisations if (wait.calls_per_step or 0.0) >= _FEWEST_WAITS]
    if not waits:
        return
    calls = sum(wait.calls_per_step or 0.0 for wait in waits)
    places = ", ".join((wait.name or "")[:80] for wait in waits[:3])
    yield Suggestion(
        stage=COMPUTE,
        title="Do not wait for the device in every step",
        why=f"The train step waits for the device {number(calls, 0 if calls >= 9.5 else 1)} times ({places}), and the "
        f"device computes for {duration(step.busy_s)} of each {duration(step.step_s)} step only.",
        how="log every N steps: total += loss.detach(), and total.item() when step % 50 == 0; the same for "
        "loss.item(), .cpu(), .nonzero() and if tensor:",
        evidence={"waits_per_step": calls, "device_busy_s_per_step": step.busy_s, "step_s": step.step_s},
    )


# --- memory, shared memory and the device -------------------------------------------------------------------


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


RULES = (
    _mixed_precision,
    _compile,
    _larger_batch,
    _synchronises,
    _memory_growth,
    _shared_memory,
    _gpu_throttled,
    _gpu_shared,
)
