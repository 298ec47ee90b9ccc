"""The user's job on its device: how a batch gets there, and what trains on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.job.description import Pipeline
from bottleneck.job.train_step import make_train_step
from bottleneck.job.transfer import copies_nothing, make_transfer
from bottleneck.measure.device import device_can_pin


@dataclass(frozen=True)
class JobOnDevice:
    """What a diagnosis runs."""

    pipeline: Pipeline
    loader: DataLoader[Any]
    """The user's own; it is never iterated."""
    device: torch.device
    copies: bool
    """There is a copy to the device."""
    pinned: bool
    """The loader's batches lie in pinned memory."""
    transfer: Callable[[Any], Any]
    step: Callable[[Any], Any]

    @staticmethod
    def of(pipeline: Pipeline, loader: DataLoader[Any], device: torch.device) -> JobOnDevice:
        copies, pinned = not copies_nothing(pipeline, device), bool(loader.pin_memory) and device_can_pin()
        # Walking through a batch of many Python objects, only to leave all of them where they are, takes its time.
        transfer = make_transfer(pipeline, device, pinned) if copies else _stay
        return JobOnDevice(pipeline, loader, device, copies, pinned, transfer, make_train_step(pipeline, device))

    @property
    def on_cpu(self) -> bool:
        return self.device.type == "cpu"


def _stay(batch: Any) -> Any:
    return batch
