"""The devices of the job: waiting for them, at block edges only since at every step it would destroy the overlap."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

_SENT_BYTES, _SENT_TIMES = 32 << 20, 4


def make_synchronize(device: torch.device, others: Iterable[torch.device] = ()) -> Callable[[], None]:
    """Return a function that waits until devices have done all their work; there is nothing to wait for on a CPU."""
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
    module = getattr(torch, device.type, None)
    synchronize = getattr(module, "synchronize", None)
    if synchronize is None:
        return None
    if device.type == "mps":
        return synchronize  # type: ignore[no-any-return]  # of a backend chosen by name
    return lambda: synchronize(device)


def devices_of(model: Any, optimizer: Any = None) -> tuple[torch.device, ...]:
    """Return the devices that a model's tensors are on, and those that an optimizer trains."""
    return tuple(dict.fromkeys(tensor.device for tensor in _tensors_of(model, optimizer)))


def _tensors_of(model: Any, optimizer: Any) -> Iterator[torch.Tensor]:
    if isinstance(model, torch.nn.Module):
        yield from model.parameters()
        yield from model.buffers()
    for group in getattr(optimizer, "param_groups", ()):
        yield from group["params"]


class DeviceMemory:
    """The most memory of a CUDA device that one of several jobs of a process needs.

    Args:
        device: Where it trains.
        model: Its model; what the others hold is not told from its own where there is none.
        optimizer: Its optimizer, if it has one.
        cuda: What counts the memory.
    """

    def __init__(self, device: torch.device, model: Any, optimizer: Any, cuda: Any = torch.cuda) -> None:
        self._device, self._model, self._optimizer, self._cuda = device, model, optimizer, cuda
        self._others_bytes = 0
        self._peak_bytes: int | None = None

    def begin(self) -> None:
        """Begin to count, while nothing runs."""
        if self._device.type != "cuda":
            return
        if isinstance(self._model, torch.nn.Module):
            self._others_bytes = max(0, self._cuda.memory_allocated(self._device) - self._own_bytes())
        self._cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int | None:
        """The most since the first `begin`; None of another device."""
        if self._device.type == "cuda":
            peak = self._cuda.max_memory_allocated(self._device) - self._others_bytes
            self._peak_bytes = max(self._peak_bytes or 0, peak)
        return self._peak_bytes

    def _own_bytes(self) -> int:
        """What weights, gradients and the state of the optimizer take."""
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
    """Measure how fast a CUDA device is sent what lies in pinned memory; None of another device, or without room."""
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
    """Return the free memory of a device; None where it has none of its own, or that is unknown."""
    mem_get_info = getattr(getattr(torch, device.type, None), "mem_get_info", None)
    if mem_get_info is None:
        return None
    try:
        return int(mem_get_info(device)[0])
    except (RuntimeError, AssertionError, ValueError):  # a build without the device, or a driver that refuses
        return None


def room_on_device(device: torch.device) -> int | None:
    """Return the memory that tensors could still take: what is free, and what torch has kept of freed ones."""
    free = free_device_bytes(device)
    if free is None:
        return None
    reserved, allocated = (
        getattr(getattr(torch, device.type), name, lambda _: 0)(device)
        for name in ("memory_reserved", "memory_allocated")
    )
    return free + int(reserved) - int(allocated)


def device_can_pin() -> bool:
    """Whether a loader with `pin_memory=True` really pins: only with an accelerator, and not for MPS."""
    accelerator = getattr(torch, "accelerator", None)  # torch 2.6 and later
    if accelerator is None:
        return torch.cuda.is_available()
    current = accelerator.current_accelerator() if accelerator.is_available() else None
    return current is not None and current.type != "mps"
