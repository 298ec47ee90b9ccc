"""Changes to the train step, except those that compile or record the model."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of, with_step_options
from bottleneck.results.tuning import Outcome
from bottleneck.tuner.change import Change, Context

_IMAGE_DIMENSIONS = 4
_LOW_PRECISIONS = (torch.bfloat16, torch.float16)
STREAM = "the dataset is a stream"
NOT_THE_LOADERS = "the loader does not choose the batches: a batch_sampler or the dataset does"
_AMPERE = (8, 0)
"""Minimum compute capability for bfloat16 and TF32."""

# --- the kind of train step, and its inputs -----------------------------------------------------------------


def no_default_step(here: Context) -> str | None:
    """Return why a change to model, loss or optimizer does not apply; None if the default step uses them."""
    if here.pipeline.train_step is not None:
        return "the train step is your own: change it there"
    return None if isinstance(here.pipeline.model, nn.Module) else "the model is not a torch.nn.Module"


def no_cuda(here: Context) -> str | None:
    """Return why a change for CUDA devices does not apply; None on such a device."""
    return None if here.device.type == "cuda" else f"the job trains on {here.device.type}, not on a CUDA device"


def parts_of_model(model: Any) -> list[nn.Module]:
    """Return a model and all its submodules; nothing for a plain function."""
    return list(model.modules()) if isinstance(model, nn.Module) else []


class Wrapper(nn.Module):
    """Calls a module in another way; shares its parameters."""

    captures = ""
    """Name for what it makes of the whole module, so that no other wrapper can: `compiled`."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.training = inner.training


@dataclass(frozen=True)
class ProcessSetting:
    """A context with another value of a process-wide setting, because all variants run in one process."""

    get: Callable[[], Any]
    put: Callable[[Any], object]
    value: Any

    @contextmanager
    def __call__(self) -> Iterator[None]:
        before = self.get()
        if before == self.value:  # entered already, for the block
            yield
            return
        self.put(self.value)
        try:
            yield
        finally:
            self.put(before)


# --- batch_size ---------------------------------------------------------------------------------------------

_MAX_TIMES = 32
"""Maximum batch size relative to the job's."""
_MIN_BATCHES = 4


def _next_batch_size(here: Context, judged: Mapping[Any, Outcome]) -> int | None:
    present, given = here.loader.batch_size or 1, here.given.make_loader().batch_size or 1
    doubled = 2 * present
    try:
        fits = len(here.loader.sampler) >= _MIN_BATCHES * doubled  # type: ignore[arg-type]  # may have no length
    except (TypeError, NotImplementedError):
        fits = True
    return doubled if doubled <= _MAX_TIMES * given and fits and doubled not in judged else None


# --- mixed precision ----------------------------------------------------------------------------------------


class _LowPrecision(Wrapper):
    def __init__(self, inner: nn.Module, device_type: str, dtype: torch.dtype) -> None:
        super().__init__(inner)
        self.dtype = dtype
        self._device_type = device_type

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Return the module's output."""
        with torch.autocast(self._device_type, self.dtype):
            return self.inner(*arguments, **keywords)


class _LowPrecisionCall:
    """Calls a function under autocast."""

    def __init__(self, inner: Callable[..., Any], device_type: str, dtype: torch.dtype) -> None:
        self.inner = inner
        self.dtype = dtype
        self._device_type = device_type

    def __call__(self, *arguments: Any) -> Any:
        with torch.autocast(self._device_type, self.dtype):
            return self.inner(*arguments)


def low_precision(here: Context) -> torch.dtype | None:
    """Return the 16-bit type that the job already computes in; None if it computes in float32."""
    model, step = here.pipeline.model, here.pipeline.train_step
    wrapped = [*parts_of_model(model), step]
    dtypes = [each.dtype for each in wrapped if isinstance(each, _LowPrecision | _LowPrecisionCall)]
    dtypes += [p.dtype for p in model.parameters()] if isinstance(model, nn.Module) else []
    if torch.is_autocast_enabled(here.device.type):
        dtypes.append(torch.get_autocast_dtype(here.device.type))
    return next((dtype for dtype in dtypes if dtype in _LOW_PRECISIONS), None)


def _in_low_precision(here: Context) -> str | None:
    return "the job computes in a lower precision already" if low_precision(here) is not None else None


def _why_not_bfloat16(here: Context) -> str | None:
    if here.pipeline.train_step is None and not isinstance(here.pipeline.model, nn.Module):
        return "the model is not a torch.nn.Module"
    if (why := _in_low_precision(here)) is not None:
        return why
    # torch.cuda.is_bf16_supported() is also true of older devices, which emulate it.
    if here.device.type == "cuda" and not torch.version.hip and _is_older_than_ampere(here.device):
        return "this device does not compute in bfloat16"
    return None


def _is_older_than_ampere(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) < _AMPERE


def _autocast(dtype: torch.dtype, pipeline: Pipeline) -> Pipeline:
    kind = device_of(pipeline).type
    if pipeline.train_step is not None:  # the user's own step: only its surroundings can be changed
        return pipeline.replace(train_step=_LowPrecisionCall(pipeline.train_step, kind, dtype))
    loss: Any = pipeline.loss_fn
    loss = None if loss is None else _LowPrecisionCall(loss, kind, dtype)
    return pipeline.replace(model=_LowPrecision(pipeline.model, kind, dtype), loss_fn=loss)


def _scaled_float16(pipeline: Pipeline) -> Pipeline:
    scaler = torch.amp.GradScaler(device_of(pipeline).type)
    return with_step_options(_autocast(torch.float16, pipeline), scaler=scaler)


# --- channels_last ------------------------------------------------------------------------------------------


class _ChannelsLast(Wrapper):
    """Calls a module with its images in channels_last format."""

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Return the module's output."""
        return self.inner(*map(_formatted, arguments), **{k: _formatted(v) for k, v in keywords.items()})


def _formatted(value: Any) -> Any:
    is_image = isinstance(value, torch.Tensor) and value.dim() == _IMAGE_DIMENSIONS
    return value.contiguous(memory_format=torch.channels_last) if is_image else value


def _why_not_channels_last(here: Context) -> str | None:
    if (why := no_default_step(here)) is not None:
        return why
    weights = [m.weight for m in here.pipeline.model.modules() if isinstance(m, nn.Conv2d)]
    if not weights:
        return "the model has no two-dimensional convolution"
    # For kernels of one pixel, or of one channel, both formats are the same.
    known = [w for w in weights if w.dim() == _IMAGE_DIMENSIONS and w.shape[1] > 1 and w.shape[2] * w.shape[3] > 1]
    if known and all(w.is_contiguous(memory_format=torch.channels_last) for w in known):
        return "the model is in channels_last already"
    return None


def _in_channels_last(pipeline: Pipeline) -> Pipeline:
    # A copy, so that the weights of the original job keep their format.
    model, optimizer = copy.deepcopy((pipeline.model, pipeline.optimizer))
    model.to(memory_format=torch.channels_last)
    # Fused and foreach implementations of optimizers require one format for a weight and its state.
    for state in getattr(optimizer, "state", {}).values():
        state.update({key: _formatted(value) for key, value in state.items()})
    return pipeline.replace(model=_ChannelsLast(model), optimizer=optimizer)


# --- fused_optimizer ----------------------------------------------------------------------------------------


def _why_not_fused(here: Context) -> str | None:
    optimizer = here.pipeline.optimizer
    if here.pipeline.train_step is not None:
        return no_default_step(here)
    if optimizer is None:
        return "the job has no optimizer"
    kind = type(optimizer)
    if not (kind.__module__.startswith("torch.optim") and "fused" in inspect.signature(kind).parameters):
        return f"{kind.__name__} has no fused implementation"
    return "the optimizer is fused already" if optimizer.defaults.get("fused") else None


def _fused(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with an optimizer of the same parameters and state."""
    given = pipeline.optimizer
    chosen = {name: value for name, value in (("fused", True), ("foreach", None)) if name in given.defaults}
    optimizer = type(given)([{**group, **chosen} for group in given.param_groups], lr=given.defaults["lr"], **chosen)
    state = given.state_dict()
    state["param_groups"] = [{**group, **chosen} for group in state["param_groups"]]
    optimizer.load_state_dict(copy.deepcopy(state))
    return pipeline.replace(optimizer=optimizer)


# --- settings of the process, during the steps only ---------------------------------------------------------

_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_KEEPS_PLANS = (
    "a process keeps the plans that cuDNN chose first, even if the flag changes later. Write "
    "torch.backends.cudnn.benchmark = True at the beginning of the job, and compare both"
)


def _why_not_tf32(here: Context) -> str | None:
    if (why := no_cuda(here)) is not None:
        return why
    if torch.version.hip or _is_older_than_ampere(here.device):
        return "this device does not compute in TF32"
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # raised if the newer settings are in use
        return "the job chooses the precision by fp32_precision already"
    return None if precision == "highest" else "products are computed in TF32 already"


def _tf32(pipeline: Pipeline) -> Pipeline:
    return with_step_options(
        pipeline, ProcessSetting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high")
    )


def _why_not_benchmark(here: Context) -> str | None:
    if (why := no_cuda(here)) is not None:
        return why
    if torch.backends.cudnn.benchmark:
        return "cudnn.benchmark is on already"
    if torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled():
        return "the job uses deterministic algorithms"
    parts = parts_of_model(here.pipeline.model)
    # An unknown model may have some: the change is listed.
    return "the model has no convolution" if parts and not any(isinstance(m, _CONVOLUTIONS) for m in parts) else None


def _why_not_threads(here: Context) -> str | None:
    if here.device.type != "cpu":
        return f"the job trains on {here.device.type}"
    return "the train step has one thread already" if torch.get_num_threads() == 1 else None


def _next_threads(here: Context, judged: Mapping[Any, Outcome]) -> int | None:
    wanted = (here.cores - here.loader.num_workers, here.cores // 2, 1)
    around = [each for each in here.pipeline._step_options.within if isinstance(each, ProcessSetting)]
    present = next((each.value for each in around if each.put is torch.set_num_threads), torch.get_num_threads())
    return next((count for count in wanted if 0 < count < present and count not in judged), None)


def _with_threads(pipeline: Pipeline, value: int) -> Pipeline:
    return with_step_options(pipeline, ProcessSetting(torch.get_num_threads, torch.set_num_threads, value))


CHANGES = (
    Change(
        "autocast", partial(_autocast, torch.bfloat16), on="step", step_only=True,
        line="with torch.autocast(device.type, dtype=torch.bfloat16): loss = loss_fn(model(inputs), targets)",
        advice=("mixed-precision",), why_not=_why_not_bfloat16,
        source="https://docs.pytorch.org/docs/stable/amp.html",
    ),
    Change(
        "fp16", _scaled_float16, on="step", step_only=True,
        line="scaler = torch.amp.GradScaler(device.type)\n"
        "with torch.autocast(device.type, dtype=torch.float16): loss = loss_fn(model(inputs), targets)\n"
        "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
        advice=("mixed-precision",),
        why_not=lambda here: no_cuda(here) or no_default_step(here) or _in_low_precision(here),
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
    Change(
        "batch_size", lambda pipeline, value: pipeline.replace(batch_size=value), on="step",
        line="DataLoader(..., batch_size={value})", advice=("faster-step",), next_value=_next_batch_size,
        why_not=lambda here: NOT_THE_LOADERS if here.loader.batch_size is None else None,
        source="https://docs.pytorch.org/tutorials/intermediate/tensorboard_profiler_tutorial.html",
    ),
    Change(
        "channels_last", _in_channels_last, on="step", alters="nothing", step_only=True,
        line="model = model.to(memory_format=torch.channels_last)\n"
        "images = images.to(memory_format=torch.channels_last)",
        why_not=_why_not_channels_last,
        source="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
    ),
    Change(
        "fused_optimizer", _fused, on="step", alters="nothing", line="torch.optim.{optimizer}(..., fused=True)",
        why_not=_why_not_fused, step_only=True, source="https://docs.pytorch.org/docs/stable/optim.html",
    ),
    Change(
        "tf32", _tf32, on="step", in_script=True, line='torch.set_float32_matmul_precision("high")',
        why_not=_why_not_tf32, step_only=True,
        source="https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",
    ),
    Change(
        "cudnn_benchmark", lambda pipeline: pipeline, on="step", alters="memory", in_script=True,
        line="torch.backends.cudnn.benchmark = True", why_not=_why_not_benchmark, by_hand=_KEEPS_PLANS,
        step_only=True,
        source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    ),
    Change(
        "threads", _with_threads, on="step", alters="nothing", in_script=True, line="torch.set_num_threads({value})",
        advice=("more-workers", "step-threads", "use-workers"),
        why_not=_why_not_threads, next_value=_next_threads,
        source="https://docs.pytorch.org/docs/stable/generated/torch.set_num_threads.html",
    ),
)  # fmt: skip
