"""The copy to the device: which device, and every tensor of a nested batch moved there."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from bottleneck.errors import PipelineError
from bottleneck.job import containers
from bottleneck.job.safe_repr import quote

if TYPE_CHECKING:
    from bottleneck.job.description import Pipeline


def resolve_device(device: Any) -> torch.device:
    """The device that is meant, with its index, so that it compares equal to a tensor's.

    Args:
        device: What `torch.device` takes, or None for the accelerator if there is one, else the CPU.

    Raises:
        PipelineError: Not a device, or one that this machine does not have.
    """
    if device is None:
        kind = _accelerator_kind()
        return torch.device("cpu") if kind is None else torch.device(kind, _current_index(kind))
    if isinstance(device, bool) or not isinstance(device, str | int | torch.device):
        raise PipelineError(f"device must be a name such as 'cuda:0', not {quote(device)}.", "Write device='cpu'.")
    try:
        wanted = torch.device(device)
    except (RuntimeError, ValueError) as error:
        raise PipelineError(f"device={device!r} is not a device that PyTorch knows.", _choices()) from error
    if wanted.type == "cpu":
        return torch.device("cpu")
    if wanted.type != _accelerator_kind():
        raise PipelineError(f"device={str(wanted)!r} is not there: {_why_missing(wanted.type)}.", _choices())
    count = _device_count(wanted.type)
    index = _current_index(wanted.type) if wanted.index is None else wanted.index
    if index >= count:
        raise PipelineError(
            f"device={str(wanted)!r} is not there: this machine has {count} {wanted.type} device(s).",
            _choices(),
        )
    return torch.device(wanted.type, index)


def device_of(pipeline: Pipeline) -> torch.device:
    """The device that a job trains on: the one that it names, else that of its model, else the accelerator or the CPU.

    Raises:
        PipelineError: Not a device, or one that this machine does not have.
    """
    model = pipeline.model
    if pipeline.device is None and isinstance(model, torch.nn.Module):
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.device.type not in ("cpu", "meta"):
                return tensor.device
    return resolve_device(pipeline.device)


def _accelerator_kind() -> str | None:
    """The type of the accelerator that can be used now, such as 'cuda'; None without one."""
    if torch.cuda.is_available():
        return "cuda"
    accelerator = getattr(torch, "accelerator", None)  # torch 2.6 and later
    if accelerator is not None:
        if not accelerator.is_available():
            return None
        current = accelerator.current_accelerator()
        return None if current is None else str(current.type)
    for kind in ("xpu", "mps"):
        module = getattr(torch, kind, None)
        if module is not None and getattr(module, "is_available", lambda: False)():
            return kind
    return None


def _current_index(kind: str) -> int:
    # Asking an uninitialised runtime would start it, long before it is needed.
    if kind == "cuda" and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's
        return torch.cuda.current_device()
    return 0


def _device_count(kind: str) -> int:
    module = getattr(torch, kind, None)
    count = getattr(module, "device_count", None)
    return int(count()) if count is not None else 1


def _why_missing(kind: str) -> str:
    if kind == "cuda" and torch.version.cuda is None and torch.version.hip is None:
        return "the installed PyTorch was built without CUDA"
    if kind == "cuda":
        return "PyTorch finds no CUDA device (see nvidia-smi and CUDA_VISIBLE_DEVICES)"
    return f"PyTorch finds no {kind} device that can train"


def _choices() -> str:
    kind = _accelerator_kind()
    return "Write device='cpu'." if kind is None else f"Write device='{kind}' or device='cpu'."


def move_to_device(batch: Any, device: torch.device, non_blocking: bool = False) -> Any:
    """Move every tensor of a nested batch; the types of the containers are kept.

    Understood are lists, tuples, named tuples, mappings, dataclasses (frozen ones too) and objects with a
    `to` method (asked first, so that a packed sequence or a tokenizer's batch moves in its own way).
    Anything else is returned unchanged, and so is a tensor that is on the device already.
    """
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=non_blocking)
    if batch is None or isinstance(batch, str | bytes | int | float | type):
        return batch
    if callable(getattr(batch, "to", None)):
        return _move_itself(batch, device, non_blocking)
    return _move_container(batch, device, non_blocking)


def _move_container(batch: Any, device: torch.device, non_blocking: bool) -> Any:
    parts = containers.children(batch)
    if parts is None:
        return batch
    moved = [(key, move_to_device(part, device, non_blocking)) for key, part in parts]
    try:
        return containers.rebuild(batch, moved)
    except TypeError:  # of a type that cannot be made from its parts
        return dict(moved) if isinstance(batch, Mapping) else tuple(part for _, part in moved)


def _move_itself(batch: Any, device: torch.device, non_blocking: bool) -> Any:
    options = {"non_blocking": non_blocking} if _takes_non_blocking(type(batch)) else {}
    with suppress(Exception):  # any user type may refuse
        # Some move themselves in place: a batch that is copied again from the host has to stay there.
        batch = copy.copy(batch)
    moved = batch.to(device, **options)
    return batch if moved is None else moved


def _takes_non_blocking(cls: type) -> bool:
    known = _NON_BLOCKING.get(cls)
    if known is None:
        known = _NON_BLOCKING[cls] = _has_non_blocking(cls)
    return known


_NON_BLOCKING: WeakKeyDictionary[type, bool] = WeakKeyDictionary()
"""Whether a class's `to` takes `non_blocking`; asked once a class, because a signature is slow to read."""


def _has_non_blocking(cls: Any) -> bool:
    try:
        parameters = inspect.signature(cls.to).parameters
    except (AttributeError, TypeError, ValueError):
        return False
    # A (*args, **kwargs) signature, as PackedSequence has, hands on what Tensor.to takes.
    return "non_blocking" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def copies_nothing(pipeline: Pipeline, device: torch.device) -> bool:
    """Whether there is no `copy` stage: the default transfer of CPU tensors to the CPU."""
    return pipeline.to_device is None and device.type == "cpu"


def make_transfer(pipeline: Pipeline, device: torch.device, pinned: bool) -> Callable[[Any], Any]:
    """The function that brings a batch from the loader to the device; asynchronously, if it lies in pinned memory."""
    to_device = pipeline.to_device
    if to_device is not None:
        return lambda batch: to_device(batch, device)
    return lambda batch: move_to_device(batch, device, non_blocking=pinned)
