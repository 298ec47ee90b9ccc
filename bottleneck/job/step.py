"""The copy to the device, and the train step: the user's own, or forward, loss, backward and optimizer step."""

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

if TYPE_CHECKING:
    from bottleneck.job.pipeline import Pipeline


def resolve_device(device: Any, form: str = "device={!r}") -> torch.device:
    """The device that is meant, with its index, so that it compares equal to a tensor's.

    Args:
        device: What `torch.device` takes, or None for the accelerator if there is one, else the CPU.
        form: How the user writes it, for messages.

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
            f"{form.format(str(wanted))} is not there: PyTorch {torch.__version__} finds no {wanted.type} device.",
            remedy,
        )
    index = _current_index(kind) if wanted.index is None else wanted.index
    count = getattr(getattr(torch, kind, None), "device_count", lambda: 1)()
    if index >= count:
        raise PipelineError(
            f"{form.format(str(wanted))} is not there: this machine has {count} {kind} device(s).", remedy
        )
    return torch.device(kind, index)


def device_of(pipeline: Pipeline) -> torch.device:
    """The device that a job trains on: the one that it names, else that of its model, else the accelerator or the CPU.

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
    """Where the model's parameters and buffers are; None if it has none or is spread over several devices."""
    if not isinstance(model, nn.Module):
        return None
    devices = {tensor.device for tensor in model.parameters()} or {b.device for b in model.buffers()}
    return devices.pop() if len(devices) == 1 else None


def accelerator_kind() -> str | None:
    """The type of the accelerator that can be used now, such as 'cuda'; None without one."""
    if torch.cuda.is_available():
        return "cuda"
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        current = accelerator.current_accelerator() if accelerator.is_available() else None
        return None if current is None else str(current.type)
    kinds = (kind for kind in ("xpu", "mps") if hasattr(torch, kind))  # before torch 2.6
    return next((kind for kind in kinds if getattr(torch, kind).is_available()), None)


def _current_index(kind: str) -> int:
    # Asking an uninitialised runtime would start it, long before it is needed.
    if kind == "cuda" and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's
        return torch.cuda.current_device()
    return 0


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
    parts = containers.children(batch)
    if parts is None:
        return batch
    moved = [(key, move_to_device(part, device, non_blocking)) for key, part in parts]
    try:
        return containers.rebuild(batch, moved)
    except TypeError:  # of a type that cannot be made from its parts
        return dict(moved) if isinstance(batch, Mapping) else tuple(part for _, part in moved)


def _move_itself(batch: Any, device: torch.device, non_blocking: bool) -> Any:
    kind: Any = type(batch)
    options = {"non_blocking": non_blocking} if _takes_non_blocking(kind) else {}
    with suppress(Exception):  # any user type may refuse
        # Some move themselves in place: a batch that is copied again from the host has to stay there.
        batch = copy.copy(batch)
    moved = batch.to(device, **options)
    return batch if moved is None else moved


@functools.lru_cache(maxsize=64)  # a signature is slow to read
def _takes_non_blocking(cls: Any) -> bool:
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


TARGET_KEYS = ("labels", "label", "targets", "target", "y")
"""Where the target is looked for in a mapping, when there is a `loss_fn` that wants it."""

_PASS_STEP = (
    "Pass train_step=step, a function of one batch, for example "
    "def step(batch): loss = loss_fn(model(batch[0]), batch[1]); loss.backward()."
)
_PASS_LOSS = "Pass loss_fn=nn.CrossEntropyLoss() (any function of output and target), or a train_step."


@dataclass(frozen=True)
class StepOptions:
    """What a pipeline's train step is run with besides its fields, as a tuning tries it."""

    within: tuple[Callable[[], AbstractContextManager[object]], ...] = ()
    """Entered around each step, in this order, such as a setting of the process; entered twice, they do no harm."""
    scaler: torch.amp.GradScaler | None = None
    """Scales the loss of the default step, for gradients in float16."""


def with_step_options(
    pipeline: Pipeline,
    *within: Callable[[], AbstractContextManager[object]],
    scaler: torch.amp.GradScaler | None = None,
) -> Pipeline:
    """The pipeline with further contexts around its train step, and a scaler if there is one."""
    given, changed = pipeline._step_options, pipeline.replace()
    options = replace(given, within=(*given.within, *within), scaler=scaler or given.scaler)
    object.__setattr__(changed, "_step_options", options)
    return changed


@contextmanager
def step_surroundings(pipeline: Pipeline) -> Iterator[None]:
    """What the train step of a pipeline is run within; blocks enter it too, for what is loaded between the steps."""
    with ExitStack() as stack:
        for context in pipeline._step_options.within:
            stack.enter_context(context())
        yield


def make_train_step(pipeline: Pipeline) -> Callable[[Any], Any]:
    """The function that trains on one batch, which is on the device already.

    The default one forwards, computes the loss, clears the gradients, goes backward and steps the optimizer
    (without an optimizer: forward and backward only), and returns the loss. It uses the model where it is and in the
    mode it is in, and never synchronises with the device. It raises what the user's code raises, and a PipelineError
    when it cannot tell inputs from targets.
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
    # Both set them to None by default; a model that is a plain function has none.
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
    """The model on a whole batch: mappings by keyword, sequences by position, a tensor as it is."""
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
        if not why:  # the error is one inside the model
            raise
        raise PipelineError(
            f"Without loss_fn the model gets the whole batch and returns the loss, and this one does not: {why}.",
            _PASS_LOSS,
        ) from error


def _split(batch: Any) -> tuple[Any, Any]:
    """Inputs and target of a batch, for a `loss_fn(output, target)`."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        inputs, target = batch
        return (_with_string_keys(inputs) if isinstance(inputs, Mapping) else inputs), target
    keys = [key for key in TARGET_KEYS if key in batch] if isinstance(batch, Mapping) else []
    if len(keys) == 1:
        inputs = _with_string_keys(batch)
        return inputs, inputs.pop(keys[0])
    raise PipelineError(
        f"With loss_fn a batch must be (inputs, targets), and this one is {describe_structure(batch)}.", _PASS_STEP
    )


def _with_string_keys(batch: Mapping[Any, Any]) -> dict[str, Any]:
    if all(isinstance(key, str) for key in batch):
        return dict(batch)
    raise PipelineError(
        f"A batch that is a mapping goes to the model by keyword, and this one is {describe_structure(batch)}.",
        _PASS_STEP,
    )


def _returned_loss(output: Any) -> Any:
    """The loss among what a model returned: itself, its `loss`, or the first item of a tuple."""
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, Mapping) and "loss" in output:
        return output["loss"]
    if isinstance(getattr(output, "loss", None), torch.Tensor):
        return output.loss
    if isinstance(output, tuple | list) and output:
        return output[0]
    raise PipelineError(
        f"Without loss_fn the model must return its loss, and it returned {describe_structure(output)}.", _PASS_LOSS
    )


def _check_loss(loss: Any, *, has_loss_fn: bool) -> None:
    """Refuse what has no gradient, before PyTorch does so in words that name no field."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        source = "loss_fn" if has_loss_fn else "The model, which has no loss_fn,"
        remedy = "Use a loss with reduction='mean', or pass a train_step." if has_loss_fn else _PASS_LOSS
        raise PipelineError(
            f"{source} must give the loss as a tensor of one number, and gave {describe_structure(loss)}.", remedy
        )
    if not loss.requires_grad:
        raise PipelineError(
            f"The loss on {loss.device} depends on no parameter that requires a gradient.",
            "Unfreeze the model; for inference pass train_step=lambda batch: model(batch[0]).",
        )
