"""The devices of the job: waiting for them, at block edges only since at every step it would destroy the overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch


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
