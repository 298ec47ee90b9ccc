"""The job as a user would run it, without the diagnosis: what its numbers are compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

_NOT_FOR_THE_LOADER = ("train_step", "to_device", "device", "augment", "model", "loss_fn", "optimizer")


def plain_loader(fields: dict[str, Any]) -> DataLoader[Any]:
    """A DataLoader with the arguments that the fields of a pipeline hold."""
    arguments = {name: value for name, value in fields.items() if name not in _NOT_FOR_THE_LOADER}
    return DataLoader(**arguments, persistent_workers=arguments["num_workers"] > 0)


def plain_move(fields: dict[str, Any]) -> Callable[[Any, torch.device], Any]:
    """Return the function that moves a batch to the device; planted pipelines without a copy leave it in place."""
    return fields.get("to_device") or _leave


def _leave(batch: Any, _device: torch.device) -> Any:
    return batch
