"""Wait for the device, at block edges only: doing so at every step would destroy the overlap to be measured."""

from __future__ import annotations

from collections.abc import Callable

import torch


def make_synchronize(device: torch.device) -> Callable[[], None]:
    """Return a function that returns once the device has done all its work; nothing to wait for on a CPU."""
    if device.type == "cpu":
        return lambda: None
    module = getattr(torch, device.type, None)
    synchronize = getattr(module, "synchronize", None)
    if synchronize is None:
        return lambda: None
    if device.type == "mps":
        return synchronize  # type: ignore[no-any-return]  # of a backend chosen by name
    return lambda: synchronize(device)


def free_device_bytes(device: torch.device) -> int | None:
    """Return the memory of a device that nobody has taken; None where it has none of its own, or does not say."""
    mem_get_info = getattr(getattr(torch, device.type, None), "mem_get_info", None)
    if mem_get_info is None:
        return None
    try:
        return int(mem_get_info(device)[0])
    except (RuntimeError, AssertionError, ValueError):  # a build without the device, or a driver that does not tell
        return None


def device_can_pin() -> bool:
    """Whether a loader with `pin_memory=True` really pins: only beside an accelerator."""
    accelerator = getattr(torch, "accelerator", None)  # torch 2.6 and later
    return bool(accelerator.is_available()) if accelerator is not None else torch.cuda.is_available()
