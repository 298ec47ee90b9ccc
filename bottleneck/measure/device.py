"""The device, its memory, and the job on it: how a batch gets there, and how it is trained on.

The device is waited for at block edges only: waiting at every step would destroy the overlap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import (
    accelerator_kind,
    copies_nothing,
    make_onto_device,
    make_train_step,
    make_transfer,
    model_device,
)
from bottleneck.loader.trees import as_it_is
from bottleneck.measure.explain_errors import job_failures
from bottleneck.measure.machine.limits import usable_cores
from bottleneck.measure.options import Loop
from bottleneck.results.records import Warning
from bottleneck.results.warnings.job import threads_share_cores

_SENT_BYTES = 32 << 20
_SENT_TIMES = 4


def make_synchronize(device: torch.device, others: Iterable[torch.device] = ()) -> Callable[[], None]:
    """Return a function that waits until devices have finished their work, at once for the CPU."""
    waits = [wait for each in dict.fromkeys((device, *others)) if (wait := _make_wait(each)) is not None]
    if len(waits) == 1:
        return waits[0]

    def synchronize() -> None:
        for wait in waits:
            wait()

    return synchronize


def _make_wait(device: torch.device) -> Callable[[], None] | None:
    if device.type in ("cpu", "meta"):
        return None
    synchronize = getattr(getattr(torch, device.type, None), "synchronize", None)
    if synchronize is None or device.type == "mps":
        return synchronize
    return lambda: synchronize(device)


def devices_of(model: Any, optimizer: Any = None) -> tuple[torch.device, ...]:
    """Return the devices of a model's tensors and of those that an optimizer trains."""
    return tuple(dict.fromkeys(tensor.device for tensor in _tensors_of(model, optimizer)))


def _tensors_of(model: Any, optimizer: Any) -> Iterator[torch.Tensor]:
    if isinstance(model, torch.nn.Module):
        yield from model.parameters()
        yield from model.buffers()
    for group in getattr(optimizer, "param_groups", ()):
        yield from group["params"]


class DeviceMemory:
    """Peak memory of a CUDA device that one of several jobs in a process needs.

    Args:
        device: Device that it trains on.
        model: Its model; without one, memory of other jobs is counted as well.
        optimizer: Its optimizer, if any.
        cuda: Counts the memory.
    """

    def __init__(self, device: torch.device, model: Any, optimizer: Any, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._model = model
        self._optimizer = optimizer
        self._cuda = cuda
        self._others_bytes = 0
        self._peak_bytes: int | None = None

    def begin(self) -> None:
        """Begin to count while nothing runs."""
        if self._device.type != "cuda":
            return
        if isinstance(self._model, torch.nn.Module):
            self._others_bytes = max(0, self._cuda.memory_allocated(self._device) - self._own_bytes())
        self._cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int | None:
        """Return the peak since the first `begin` [bytes]; None for devices other than CUDA."""
        if self._device.type == "cuda":
            peak = self._cuda.max_memory_allocated(self._device) - self._others_bytes
            self._peak_bytes = max(self._peak_bytes or 0, peak)
        return self._peak_bytes

    def _own_bytes(self) -> int:
        """Return the bytes of weights, gradients and the state of the optimizer."""
        held = list(_tensors_of(self._model, self._optimizer))
        held += [tensor.grad for tensor in held if tensor.grad is not None]
        states = getattr(self._optimizer, "state", {}).values()
        values = (value for state in states if isinstance(state, dict) for value in state.values())
        held += [value for value in values if isinstance(value, torch.Tensor)]
        storages = {
            storage._cdata: storage for storage in (t.untyped_storage() for t in held if t.device == self._device)
        }
        return sum(storage.nbytes() for storage in storages.values())


def pinned_bytes_per_s(device: torch.device, clock: Callable[[], float] = time.perf_counter) -> float | None:
    """Measure the speed of copying pinned memory to a CUDA device; None for other devices or without room."""
    if device.type != "cuda":
        return None
    try:
        source = torch.empty(_SENT_BYTES, dtype=torch.uint8, pin_memory=True)
        target = torch.empty(_SENT_BYTES, dtype=torch.uint8, device=device)
        synchronize, times_s = make_synchronize(device), []
        for _ in range(_SENT_TIMES):
            synchronize()
            began_s = clock()
            target.copy_(source, non_blocking=True)
            synchronize()
            times_s.append(clock() - began_s)
    except RuntimeError:
        return None
    return _SENT_BYTES / max(min(times_s), 1e-9)


def free_device_bytes(device: torch.device) -> int | None:
    """Return the free memory of a device, including unused memory that torch's allocator holds.

    None if the device has no separate memory, or it is unknown.
    """
    library: Any = getattr(torch, device.type, None)
    if not hasattr(library, "mem_get_info"):
        return None
    try:
        free_bytes = int(library.mem_get_info(device)[0])
        if hasattr(library, "memory_reserved"):
            free_bytes += int(library.memory_reserved(device)) - int(library.memory_allocated(device))
    except (RuntimeError, AssertionError, ValueError):  # a build without the device, or a driver that refuses
        return None
    return free_bytes


def device_can_pin() -> bool:
    """Return True if a loader with `pin_memory=True` really pins: only with an accelerator, and not for MPS."""
    kind = accelerator_kind()
    return kind == "cuda" or (kind not in (None, "mps") and hasattr(torch, "accelerator"))  # from torch 2.6 on


_ON_CPU = "the device is the CPU, so that nothing is copied"


@dataclass(frozen=True)
class JobOnDevice:
    """The job of a diagnosis on its device."""

    pipeline: Pipeline
    loader: DataLoader[Any]
    """The user's loader; it is never iterated."""
    device: torch.device
    not_copied: str
    """Reason why there is no copy to the device to leave out; empty if there is one."""
    pinned: bool
    """True if the loader's batches are in pinned memory."""
    transfer: Callable[[Any], Any]
    """Moves a batch of the loader to the device before each step; the identity for a loop that copies itself."""
    onto_device: Callable[[Any], Any]
    """Makes a batch of the `device` experiment from one of the loader, outside of timed blocks."""
    step: Callable[[Any], Any]
    loop_copies: bool = False
    """True if the step copies its batches itself."""

    @staticmethod
    def of(pipeline: Pipeline, loader: DataLoader[Any], device: torch.device, loop: Loop | None = None) -> JobOnDevice:
        loop = loop or Loop()
        pinned = bool(loader.pin_memory) and device_can_pin()
        not_copied = _ON_CPU if copies_nothing(pipeline, device) else loop.not_copied
        # Walking through a batch of many Python objects only to leave all of them in place takes time.
        transfer = as_it_is if not_copied else make_transfer(pipeline, device, pinned)
        onto_device = as_it_is if not_copied else make_onto_device(pipeline, device, pinned)
        if loop.copies_itself:
            # The loop may read its batch in a separate stream, without waiting.
            transfer, onto_device = as_it_is, waited_for(onto_device, make_synchronize(device))
        step = make_train_step(pipeline)
        return JobOnDevice(
            pipeline, loader, device, not_copied, pinned, transfer, onto_device, step, loop.copies_itself
        )

    @property
    def copies(self) -> bool:
        """True if there is a copy to the device that can be left out."""
        return not self.not_copied

    @property
    def on_cpu(self) -> bool:
        return self.device.type == "cpu"

    def move_model(self) -> None:
        """Move the model to the device if the train step is the default one."""
        model = self.pipeline.model
        # A model spread over several devices stays in place.
        if isinstance(model, torch.nn.Module) and self.pipeline.train_step is None and model_device(model) is not None:
            with job_failures("device", "model, when moved to the device,"):
                model.to(self.device)

    def warnings(self, workers: int) -> Iterator[Warning]:
        """Yield a warning if workers and a train step on the CPU use more threads than there are cores."""
        cores, threads = usable_cores(), torch.get_num_threads()
        # A step written by the user may or may not compute on the CPU.
        computes = self.on_cpu and self.pipeline.train_step is None
        if computes and threads > 1 and workers > 0 and threads + workers > cores:
            yield threads_share_cores(threads, workers, cores)


def waited_for(work: Callable[[Any], Any], synchronize: Callable[[], None]) -> Callable[[Any], Any]:
    """Return a function that works on a batch, such as a step or a copy, and returns when the work is done."""

    def run(batch: Any) -> Any:
        made = work(batch)
        synchronize()
        return made

    return run
