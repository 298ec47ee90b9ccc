"""Facts about the model, the optimizer and torch's settings, read and never changed.

What a trace shows counts more than what an object says of itself: autocast may be entered anywhere, and an optimizer
chooses its implementation when it steps.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bottleneck.job.description import Pipeline
from bottleneck.measure.batch_cache import CachedBatch, tensors_of
from bottleneck.measure.passes.trace_products import computed_types, convolves_channels_last
from bottleneck.measure.passes.trace_summary import Steps
from bottleneck.measure.system.cgroup import PROC
from bottleneck.measure.system.environment import read_cpuinfo
from bottleneck.results.evidence import ModelFacts, OptimizerPart, TracedSteps

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_SMALL = ("bfloat16", "float16")
_BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
"""As /proc/cpuinfo names processors that multiply bfloat16 in hardware: x86, x86 and Arm."""
_COMPILED = "Torch-Compiled Region"


def describe_model(
    pipeline: Pipeline,
    device: torch.device,
    batches: tuple[CachedBatch, ...],
    steps: Steps | None,
    summary: TracedSteps,
    ours_bytes: int = 0,
) -> ModelFacts:
    """Describe what the rules on computing need to know.

    Args:
        pipeline: The job.
        device: Where it trains.
        batches: Some of its batches, as the train step gets them.
        steps: Traced steps; None where there is no trace.
        summary: What was kept of the same trace as evidence.
        ours_bytes: Device memory that the diagnosis itself held while the job trained; the job does not need it.
    """
    step = pipeline.train_step
    model = pipeline.model
    # Beside a train step of the user's own, a model is what they say that it trains.
    facts = _parameters_of(model)
    types = computed_types(steps) if steps is not None else {}
    facts = replace(
        facts,
        compiled=_is_compiled(model, step, steps),
        own_train_step=step is not None,
        computed_dtypes=types or None,
        autocast=_autocast(types, facts.dtypes),
        fixed_shapes=_same_shapes(batches),
        cudnn_benchmark=bool(torch.backends.cudnn.benchmark),
        matmul_precision=_matmul_precision(),
    )
    return _with_device(
        _with_layout(_with_optimizer(facts, pipeline.optimizer, summary.optimizer), model, steps), device, ours_bytes
    )


# --- the model ---------------------------------------------------------------------------------------------


def _parameters_of(model: Any) -> ModelFacts:
    if not isinstance(model, nn.Module):
        return ModelFacts()
    known = [p for p in model.parameters() if not nn.parameter.is_lazy(p)]
    dtypes: Counter[str] = Counter()
    for parameter in known:
        dtypes[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return ModelFacts(
        parameters=sum(dtypes.values()),
        parameter_bytes=sum(p.numel() * p.element_size() for p in known),
        dtypes=dict(dtypes),
    )


def _is_compiled(model: Any, step: Any, steps: Steps | None) -> bool:
    if steps is not None and any(_COMPILED in call.name for call in steps.trace.calls):
        return True
    # torch.compile wraps a module or a function, and module.compile() leaves a mark on it.
    parts = list(model.modules()) if isinstance(model, nn.Module) else [model]
    return any(_looks_compiled(part) for part in (*parts, step))


def _looks_compiled(part: Any) -> bool:
    state = getattr(part, "__dict__", {})
    if state.get("_compiled_call_impl") is not None or "_torchdynamo_orig_callable" in state:
        return True
    dynamo = sys.modules.get("torch._dynamo.eval_frame")  # importing it would take seconds
    return dynamo is not None and isinstance(part, dynamo.OptimizedModule)


def _autocast(types: Mapping[str, int], dtypes: Mapping[str, float] | None) -> bool | None:
    """Return whether a model of float32 computes in a smaller type; None where no product was traced.

    The casts may also be the user's own: what matters is what is computed.
    """
    if not types or dtypes is None or not dtypes.get("float32"):
        return None
    return any(types.get(name) for name in _SMALL)


def _with_layout(facts: ModelFacts, model: Any, steps: Steps | None) -> ModelFacts:
    parts = model.modules() if isinstance(model, nn.Module) else ()
    convolutions = [part for part in parts if isinstance(part, _CONVOLUTIONS)]
    seen = convolves_channels_last(steps) if steps is not None else None
    if seen is None:
        votes = [vote for part in convolutions for vote in _weight_layout(part.weight)]
        seen = 2 * sum(votes) > len(votes) if votes else None
    counted = len(convolutions) if isinstance(model, nn.Module) else None
    return replace(facts, convolutions=counted, channels_last=seen)


def _weight_layout(weight: torch.Tensor) -> Iterator[bool]:
    """Yield whether a weight has its channels innermost, unless its shape makes both layouts the same."""
    if nn.parameter.is_lazy(weight) or weight.dim() != 4:
        return
    last = weight.is_contiguous(memory_format=torch.channels_last)
    if last != weight.is_contiguous():
        yield last


def _same_shapes(batches: tuple[CachedBatch, ...]) -> bool | None:
    shapes = {tuple(tuple(tensor.shape) for tensor in tensors_of(cached.batch)) for cached in batches}
    return None if len(batches) < 2 else len(shapes) == 1


# --- the optimizer -----------------------------------------------------------------------------------------


def _with_optimizer(facts: ModelFacts, optimizer: Any, seen: OptimizerPart) -> ModelFacts:
    """Describe the optimizer: as the trace shows it, else as it says."""
    groups = getattr(optimizer, "param_groups", None)
    if seen.name is not None:
        return replace(facts, optimizer=seen.name, optimizer_fused=seen.fused, optimizer_foreach=seen.foreach)
    if optimizer is None or not isinstance(groups, list):
        return facts
    fused, foreach = (_flag(groups, name) for name in ("fused", "foreach"))
    return replace(facts, optimizer=type(optimizer).__name__, optimizer_fused=fused, optimizer_foreach=foreach)


def _flag(groups: list[Any], name: str) -> bool | None:
    """Return what all groups of parameters say; None where they leave it to torch, or differ."""
    values = {group.get(name) for group in groups if isinstance(group, Mapping)}
    value = values.pop() if len(values) == 1 else None
    return value if isinstance(value, bool) else None


# --- settings and the device -------------------------------------------------------------------------------


def _matmul_precision() -> str | None:
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:  # set by the newer flag of torch 2.9, beside which the older one cannot be read
        setting = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
        return {"ieee": "highest", "tf32": "high"}.get(str(setting))


def _with_device(facts: ModelFacts, device: torch.device, ours_bytes: int) -> ModelFacts:
    if device.type == "cpu":
        return replace(facts, cpu_bfloat16=cpu_multiplies_bfloat16())
    if device.type != "cuda":
        return facts
    properties = torch.cuda.get_device_properties(device)
    return replace(
        facts,
        peak_device_bytes=max(0, torch.cuda.max_memory_allocated(device) - ours_bytes),
        device_bytes=int(properties.total_memory),
        device_free_bytes=int(torch.cuda.mem_get_info(device)[0]) + ours_bytes,
        # On AMD's devices these two numbers mean something else.
        device_capability=(properties.major, properties.minor) if torch.version.hip is None else None,
    )


def cpu_multiplies_bfloat16(proc: Path = PROC) -> bool | None:
    """Whether the processor multiplies bfloat16 in hardware; None where that is unknown."""
    flags = read_cpuinfo("flags", "features", proc=proc)
    return None if flags is None else any(flag in flags.split() for flag in _BFLOAT16_FLAGS)
