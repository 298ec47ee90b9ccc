"""Changes to the train step: of that of a pipeline with a model, and around one of the user's own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from bottleneck.job.description import Pipeline
from bottleneck.job.train_step import FrameworkStep
from bottleneck.results.tuning import Outcome
from bottleneck.tuning.change import Change, Here

_USERS_STEP = "the train step is your own: change it there"
_IMAGE_DIMENSIONS = 4
_COMPILING_S = 45.0
_MOST_TIMES = 16
"""Times the batch size of the job, up to which a larger one is tried."""


def _has_own_step(pipeline: Pipeline) -> bool:
    return pipeline.train_step is None and isinstance(pipeline.model, nn.Module)


def _no_own_step(here: Here) -> str | None:
    if here.pipeline.train_step is not None:
        return _USERS_STEP
    return None if _has_own_step(here.pipeline) else "the model is no torch.nn.Module"


# --- batch size -------------------------------------------------------------------------------------------


def _why_no_larger_batch(here: Here) -> str | None:
    if here.loader.batch_size is None:
        return "the loader does not choose the batches: a batch_sampler or the dataset does"
    return None


def _next_batch_size(here: Here, judged: Mapping[Any, Outcome]) -> int | None:
    present, given = here.loader.batch_size or 1, here.given.make_loader().batch_size or 1
    doubled = 2 * present
    try:
        fits = len(here.loader.sampler) >= 4 * doubled  # type: ignore[arg-type]  # a sampler may have no length
    except (TypeError, NotImplementedError):
        fits = True
    return doubled if doubled <= _MOST_TIMES * given and fits and doubled not in judged else None


def _batch_size(pipeline: Pipeline, value: int) -> Pipeline:
    return pipeline.replace(batch_size=value)


# --- gradients --------------------------------------------------------------------------------------------


def _why_no_set_to_none(here: Here) -> str | None:
    step = here.pipeline.train_step
    if step is None:
        return "the gradients are set to None already"
    if isinstance(step, FrameworkStep):
        return "the framework clears the gradients"
    return None if _clearers(here.pipeline) else "the pipeline of this train step names no optimizer and no model"


def _clearers(pipeline: Pipeline) -> list[Any]:
    """What a train step of the user's may clear the gradients with."""
    return [owner for owner in (pipeline.optimizer, pipeline.model) if callable(getattr(owner, "zero_grad", None))]


def _set_to_none(pipeline: Pipeline) -> Pipeline:
    """The user's step, in which each `zero_grad`, whatever it is called with, sets the gradients to None."""
    step, owners = pipeline.train_step, _clearers(pipeline)
    assert step is not None

    def call(batch: Any) -> Any:
        for owner in owners:
            owner.zero_grad = _clearing(owner)
        try:
            return step(batch)
        finally:
            for owner in owners:
                del owner.zero_grad

    return pipeline.replace(train_step=call)


def _clearing(owner: Any) -> Callable[..., Any]:
    clear = type(owner).zero_grad
    return lambda *_, **__: clear(owner, set_to_none=True)


# --- autocast ---------------------------------------------------------------------------------------------


class _InBfloat16(nn.Module):
    """Calls a module, whose parameters it shares, under autocast."""

    def __init__(self, inner: nn.Module, device_type: str) -> None:
        super().__init__()
        self.inner, self._device_type = inner, device_type
        self.training = inner.training

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """What the module gives."""
        with torch.autocast(self._device_type, torch.bfloat16):
            return self.inner(*arguments, **keywords)


def _under_autocast(function: Callable[..., Any] | None, device_type: str) -> Callable[..., Any] | None:
    if function is None:
        return None

    def call(*arguments: Any) -> Any:
        with torch.autocast(device_type, torch.bfloat16):
            return function(*arguments)

    return call


def _why_no_autocast(here: Here) -> str | None:
    step, model = here.pipeline.train_step, here.pipeline.model
    if isinstance(step, FrameworkStep):
        return "the framework decides the precision: set its own option"
    if step is None and not isinstance(model, nn.Module):
        return "the model is no torch.nn.Module"
    low = isinstance(model, nn.Module) and any(p.dtype in (torch.bfloat16, torch.float16) for p in model.parameters())
    if low or torch.is_autocast_enabled(here.device.type):
        return "the job computes in a lower precision already"
    if here.device.type == "cuda" and not torch.cuda.is_bf16_supported():
        return "this device does not compute in bfloat16"
    return None


def _autocast(pipeline: Pipeline) -> Pipeline:
    from bottleneck.job.transfer import resolve_device

    kind = resolve_device(pipeline.device).type
    if pipeline.train_step is not None:  # a step of the user's: only what is around it can be changed
        return pipeline.replace(train_step=_under_autocast(pipeline.train_step, kind))
    model = _InBfloat16(pipeline.model, kind)
    return pipeline.replace(model=model, loss_fn=_under_autocast(pipeline.loss_fn, kind))


# --- memory format ----------------------------------------------------------------------------------------


class _ChannelsLast(nn.Module):
    """Calls a module with images whose channels lie beside each other in memory."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.training = inner.training

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """What the module gives."""
        return self.inner(*map(_channels_last, arguments), **{k: _channels_last(v) for k, v in keywords.items()})


def _channels_last(value: Any) -> Any:
    is_image = isinstance(value, torch.Tensor) and value.dim() == _IMAGE_DIMENSIONS
    return value.contiguous(memory_format=torch.channels_last) if is_image else value


def _why_no_channels_last(here: Here) -> str | None:
    if (why := _no_own_step(here)) is not None:
        return why
    weights = [m.weight for m in here.pipeline.model.modules() if isinstance(m, nn.Conv2d)]
    if not weights:
        return "the model has no two-dimensional convolution"
    # Of a kernel of one pixel, or of one channel, both formats are the same.
    known = [w for w in weights if w.dim() == _IMAGE_DIMENSIONS and w.shape[1] > 1 and w.shape[2] * w.shape[3] > 1]
    if known and all(w.is_contiguous(memory_format=torch.channels_last) for w in known):
        return "the model is in channels_last already"
    return None


def _in_channels_last(pipeline: Pipeline) -> Pipeline:
    # A copy: the weights of the job itself keep their memory.
    model, optimizer = copy.deepcopy((pipeline.model, pipeline.optimizer))
    return pipeline.replace(model=_ChannelsLast(model.to(memory_format=torch.channels_last)), optimizer=optimizer)


# --- optimizer --------------------------------------------------------------------------------------------


def _why_not_fused(here: Here) -> str | None:
    optimizer = here.pipeline.optimizer
    if here.pipeline.train_step is not None:
        return _USERS_STEP
    if optimizer is None:
        return "the job has no optimizer"
    kind = type(optimizer)
    takes = kind.__module__.startswith("torch.optim") and "fused" in inspect.signature(kind).parameters
    if not takes:
        return f"{kind.__name__} has no fused implementation"
    return "the optimizer is fused already" if optimizer.defaults.get("fused") else None


def _fused(pipeline: Pipeline) -> Pipeline:
    given = pipeline.optimizer
    fused = {"fused": True} | ({"foreach": None} if "foreach" in given.defaults else {})
    groups = [{**group, **fused} for group in given.param_groups]
    optimizer = type(given)(groups, **{"lr": given.defaults["lr"], "fused": True})
    state = given.state_dict()
    state["param_groups"] = [{**group, **fused} for group in state["param_groups"]]
    optimizer.load_state_dict(copy.deepcopy(state))
    return pipeline.replace(optimizer=optimizer)


# --- compiling --------------------------------------------------------------------------------------------


def _why_not_compiled(here: Here) -> str | None:
    if (why := _no_own_step(here)) is not None:
        return why
    inner = [here.pipeline.model, *here.pipeline.model.modules()]
    return "the model is compiled already" if any(type(m).__name__ == "OptimizedModule" for m in inner) else None


def _compiled(pipeline: Pipeline) -> Pipeline:
    return pipeline.replace(model=torch.compile(pipeline.model))


CHANGES = (
    Change(
        "autocast", _autocast, on="step",
        line='with torch.autocast(device.type, dtype=torch.bfloat16): loss = loss_fn(model(inputs), targets)',
        advice=("mixed-precision",), why_not=_why_no_autocast,
    ),
    Change(
        "channels_last", _in_channels_last, on="step", alters="nothing",
        line="model.to(memory_format=torch.channels_last), and the same for the images",
        advice=("channels-last",), why_not=_why_no_channels_last,
    ),
    Change(
        "fused_optimizer", _fused, on="step", alters="nothing", line="torch.optim.…(..., fused=True)",
        advice=("fused-optimizer",), why_not=_why_not_fused,
    ),
    Change(
        "set_to_none", _set_to_none, on="step", alters="nothing", line="optimizer.zero_grad(set_to_none=True)",
        advice=("set-to-none",), why_not=_why_no_set_to_none,
    ),
    Change(
        "batch_size", _batch_size, on="step", line="DataLoader(..., batch_size={value})",
        advice=("larger-batch",), why_not=_why_no_larger_batch, next_value=_next_batch_size,
    ),
    Change(
        "compile", _compiled, on="step", alters="nothing", line="model = torch.compile(model)",
        advice=("reduce-overhead", "cuda-graphs"), why_not=_why_not_compiled, least_s=_COMPILING_S,
    ),
)  # fmt: skip
