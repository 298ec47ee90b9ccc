"""Copy to the device, and train step: the user's own, or forward, loss, backward and optimizer step."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from bottleneck.errors import PipelineError
from bottleneck.job import containers
from bottleneck.job.containers import describe_structure
from bottleneck.job.users_code import quote, why_not_called
from bottleneck.job.wrapping import WrappersWork, running

if TYPE_CHECKING:
    from bottleneck.job.pipeline import Pipeline


def resolve_device(device: Any, form: str = "device={!r}") -> torch.device:
    """Return the device with its index, so that it compares equal to a tensor's.

    Args:
        device: Argument of `torch.device`, or None for the accelerator if there is one, otherwise the CPU.
        form: Form in which the user writes it, for messages.

    Raises:
        PipelineError: Not a device, or one that this machine does not have.
    """
    kind = accelerator_kind()
    if device is None:
        return torch.device("cpu") if kind is None else torch.device(kind, _current_index(kind))
    remedy = f"Write {' or '.join(form.format(known) for known in (kind, 'cpu') if known)}."
    if isinstance(device, bool) or not isinstance(device, str | int | torch.device) or device == "":
        raise PipelineError(f"device must be a name such as 'cuda:0', not {quote(device)}.", remedy)
    try:
        wanted = torch.device(device)
    except (RuntimeError, ValueError) as error:
        raise PipelineError(f"{form.format(device)} is not a device that PyTorch knows.", remedy) from error
    if wanted.type == "cpu":
        return torch.device("cpu")
    if wanted.type != kind:
        raise PipelineError(
            f"{form.format(str(wanted))} does not exist: PyTorch {torch.__version__} finds no {wanted.type} device.",
            remedy,
        )
    index = _current_index(kind) if wanted.index is None else wanted.index
    count = getattr(getattr(torch, kind, None), "device_count", lambda: 1)()
    if index >= count:
        raise PipelineError(
            f"{form.format(str(wanted))} does not exist: this machine has {count} {kind} device(s).", remedy
        )
    return torch.device(kind, index)


def device_of(pipeline: Pipeline) -> torch.device:
    """Return the device that a job trains on: its own, otherwise its model's, otherwise the accelerator or the CPU.

    Raises:
        PipelineError: Not a device, or one that this machine does not have.
    """
    model = pipeline.model
    if pipeline.device is None and isinstance(model, nn.Module):
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.device.type not in ("cpu", "meta"):
                return tensor.device
    return resolve_device(pipeline.device)


def model_device(model: Any) -> torch.device | None:
    """Return the device of a model's parameters and buffers; None if it has none, or several."""
    if not isinstance(model, nn.Module):
        return None
    devices = {tensor.device for tensor in model.parameters()} or {b.device for b in model.buffers()}
    return devices.pop() if len(devices) == 1 else None


def accelerator_kind() -> str | None:
    """Return the type of the available accelerator, such as 'cuda'; None without one."""
    if torch.cuda.is_available():
        return "cuda"
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        current = accelerator.current_accelerator() if accelerator.is_available() else None
        return None if current is None else str(current.type)
    kinds = (kind for kind in ("xpu", "mps") if hasattr(torch, kind))  # before torch 2.6
    return next((kind for kind in kinds if getattr(torch, kind).is_available()), None)


def _current_index(kind: str) -> int:
    # Calling an uninitialised runtime would start it long before it is needed.
    if kind == "cuda" and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's
        return torch.cuda.current_device()
    return 0


def move_to_device(batch: Any, device: torch.device, non_blocking: bool = False) -> Any:
    """Move every tensor of a nested batch, and keep the types of the containers.

    Supported are lists, tuples, named tuples, mappings, dataclasses (also frozen ones) and objects with a method `to`,
    which is preferred, so that a packed sequence or a tokenizer's batch moves in its own way. Other objects are
    returned unchanged, and so are tensors that are on the device already.
    """
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=non_blocking)
    if batch is None or isinstance(batch, str | bytes | int | float | type):
        return batch
    if callable(getattr(batch, "to", None)):
        return _move_itself(batch, device, non_blocking)
    parts = containers.children(batch)
    if parts is None:
        return batch
    moved = [(key, move_to_device(part, device, non_blocking)) for key, part in parts]
    try:
        return containers.rebuild(batch, moved)
    except TypeError:  # the type cannot be rebuilt from its parts
        return dict(moved) if isinstance(batch, Mapping) else tuple(part for _, part in moved)


def _move_itself(batch: Any, device: torch.device, non_blocking: bool) -> Any:
    kind: Any = type(batch)
    options = {"non_blocking": non_blocking} if _takes_non_blocking(kind) else {}
    with suppress(Exception):  # any user type may refuse
        # Some move themselves in place, but a batch that is copied again from the host has to stay there.
        batch = copy.copy(batch)
    moved = batch.to(device, **options)
    return batch if moved is None else moved


@functools.lru_cache(maxsize=64)  # reading a signature is slow
def _takes_non_blocking(cls: Any) -> bool:
    try:
        parameters = inspect.signature(cls.to).parameters
    except (AttributeError, TypeError, ValueError):
        return False
    # A (*args, **kwargs) signature, as PackedSequence has, passes on the arguments of Tensor.to.
    return "non_blocking" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def copies_nothing(pipeline: Pipeline, device: torch.device) -> bool:
    """Return True if there is no `copy` stage, because CPU tensors are transferred to the CPU by default."""
    return pipeline.to_device is None and device.type == "cpu"


def make_transfer(pipeline: Pipeline, device: torch.device, pinned: bool) -> Callable[[Any], Any]:
    """Return the function that moves a batch to the device, asynchronously if the batch is in pinned memory."""
    to_device = running(pipeline.to_device)
    if to_device is not None:
        return lambda batch: to_device(batch, device)
    return lambda batch: move_to_device(batch, device, non_blocking=pinned)


def make_onto_device(pipeline: Pipeline, device: torch.device, pinned: bool) -> Callable[[Any], Any]:
    """Return the function that makes a batch for a cache on the device: of that batch, never of an earlier one."""
    work = pipeline.to_device
    if isinstance(work, WrappersWork):
        return lambda batch: work(batch, device)
    return make_transfer(pipeline, device, pinned)


TARGET_KEYS = ("labels", "label", "targets", "target", "y")
"""Keys of a mapping under which the target is searched for, if there is a `loss_fn` that needs it."""

_PASS_STEP = (
    "Pass train_step=step, a function of one batch, for example "
    "def step(batch): loss = loss_fn(model(batch[0]), batch[1]); loss.backward()."
)
_PASS_LOSS = "Pass loss_fn=nn.CrossEntropyLoss() (any function of output and target), or a train_step."


@dataclass(frozen=True)
class StepOptions:
    """Surroundings of a pipeline's train step besides its fields, as a tuning tries them."""

    within: tuple[Callable[[], AbstractContextManager[object]], ...] = ()
    """Contexts entered around each step, in this order; entering one twice must be harmless."""
    scaler: torch.amp.GradScaler | None = None
    """Scaler of the default step's loss, for gradients in float16."""


def with_step_options(
    pipeline: Pipeline,
    *within: Callable[[], AbstractContextManager[object]],
    scaler: torch.amp.GradScaler | None = None,
) -> Pipeline:
    """Return the pipeline with further contexts around its train step, and a scaler if one is given."""
    given, changed = pipeline._step_options, pipeline.replace()
    options = replace(given, within=(*given.within, *within), scaler=scaler or given.scaler)
    object.__setattr__(changed, "_step_options", options)
    return changed


@contextmanager
def step_surroundings(pipeline: Pipeline) -> Iterator[None]:
    """Enter the contexts around a pipeline's train step; blocks enter them too, for loading between the steps."""
    with ExitStack() as stack:
        for context in pipeline._step_options.within:
            stack.enter_context(context())
        yield


def make_train_step(pipeline: Pipeline) -> Callable[[Any], Any]:
    """Return the function that trains on one batch, which is already on the device.

    The default one runs forward, computes the loss, clears the gradients, runs backward and steps the optimizer
    (without one: forward and backward only), and returns the loss. It uses the model on its device and in its present
    mode, and never synchronises with the device. It raises the errors of the user's code, and a PipelineError
    if it cannot distinguish inputs from targets.
    """
    step = pipeline.train_step or _make_default_step(pipeline)
    if not pipeline._step_options.within:
        return step

    def call(batch: Any) -> Any:
        with step_surroundings(pipeline):
            return step(batch)

    return call


def _make_default_step(pipeline: Pipeline) -> Callable[[Any], torch.Tensor]:
    model, loss_fn, optimizer = pipeline.model, pipeline.loss_fn, pipeline.optimizer
    scaler = pipeline._step_options.scaler
    # Both set gradients to None by default; a model that is a plain function has none.
    clear_gradients = getattr(model if optimizer is None else optimizer, "zero_grad", lambda: None)

    def train_on(batch: Any) -> torch.Tensor:
        loss = forward(batch)
        clear_gradients()
        (loss if scaler is None else scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]  # torch's
        if optimizer is not None and scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        elif optimizer is not None:
            optimizer.step()
        return loss

    def forward(batch: Any) -> torch.Tensor:
        if loss_fn is None:
            loss = _returned_loss(_call_model(model, batch))
        else:
            inputs, target = _split(batch)
            output = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
            loss = loss_fn(output, target)
        _check_loss(loss, has_loss_fn=loss_fn is not None)
        return loss  # type: ignore[no-any-return]  # the user's

    return train_on


def _call_model(model: Any, batch: Any) -> Any:
    """Call the model with a whole batch: mappings by keyword, sequences by position, a tensor as the only argument."""
    positional: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    if isinstance(batch, Mapping):
        keywords = _with_string_keys(batch)
    elif isinstance(batch, tuple | list):
        positional = tuple(batch)
    elif isinstance(batch, torch.Tensor):
        positional = (batch,)
    else:
        raise PipelineError(f"The model cannot be given this batch: {describe_structure(batch)}.", _PASS_STEP)
    try:
        return model(*positional, **keywords)
    except TypeError as error:
        why = why_not_called(getattr(model, "forward", model), positional, keywords)
        if not why:  # the error is inside the model
            raise
        raise PipelineError(
            f"Without loss_fn the model gets the whole batch and must return the loss, but refuses it: {why}.",
            _PASS_LOSS,
        ) from error


def _split(batch: Any) -> tuple[Any, Any]:
    """Return inputs and target of a batch, for a `loss_fn(output, target)`."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        inputs, target = batch
        return (_with_string_keys(inputs) if isinstance(inputs, Mapping) else inputs), target
    keys = [key for key in TARGET_KEYS if key in batch] if isinstance(batch, Mapping) else []
    if len(keys) == 1:
        inputs = _with_string_keys(batch)
        return inputs, inputs.pop(keys[0])
    raise PipelineError(
        f"With loss_fn a batch must be (inputs, targets), but this one is {describe_structure(batch)}.", _PASS_STEP
    )


def _with_string_keys(batch: Mapping[Any, Any]) -> dict[str, Any]:
    if all(isinstance(key, str) for key in batch):
        return dict(batch)
    raise PipelineError(
        f"A batch that is a mapping is passed to the model by keyword, but this one is {describe_structure(batch)}.",
        _PASS_STEP,
    )


def _returned_loss(output: Any) -> Any:
    """Return the loss from a model's output: the output itself, its `loss`, or the first item of a tuple."""
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, Mapping) and "loss" in output:
        return output["loss"]
    if isinstance(getattr(output, "loss", None), torch.Tensor):
        return output.loss
    if isinstance(output, tuple | list) and output:
        return output[0]
    raise PipelineError(
        f"Without loss_fn the model must return its loss, but it returned {describe_structure(output)}.", _PASS_LOSS
    )


def _check_loss(loss: Any, *, has_loss_fn: bool) -> None:
    """Refuse a loss without a gradient, because PyTorch's own error names no field."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        source = "loss_fn" if has_loss_fn else "The model, which has no loss_fn,"
        remedy = "Use a loss with reduction='mean', or pass a train_step." if has_loss_fn else _PASS_LOSS
        raise PipelineError(
            f"{source} must return the loss as a tensor of one number, but returned {describe_structure(loss)}.", remedy
        )
    if not loss.requires_grad:
        raise PipelineError(
            f"The loss on {loss.device} depends on no parameter that requires a gradient.",
            "Unfreeze the model; for inference pass train_step=lambda batch: model(batch[0]).",
        )
