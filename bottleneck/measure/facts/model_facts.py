"""Facts about the model and the device, read and never changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bottleneck.job.description import Pipeline
from bottleneck.measure.system.cgroup import PROC
from bottleneck.measure.system.environment import read_cpuinfo
from bottleneck.results.evidence import ModelFacts

_BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
"""As /proc/cpuinfo names processors that multiply bfloat16 in hardware: x86, x86 and Arm."""


def describe_model(pipeline: Pipeline, device: torch.device, ours_bytes: int = 0) -> ModelFacts:
    """Describe what the rules on computing need to know.

    Args:
        pipeline: The job.
        device: Where it trains.
        ours_bytes: Device memory that the diagnosis itself held while the job trained; the job does not need it.
    """
    model = pipeline.model
    # torch.compile wraps a module or a function, and module.compile() leaves a mark on it.
    parts = list(model.modules()) if isinstance(model, nn.Module) else [model]
    compiled = any(_looks_compiled(part) for part in (*parts, pipeline.train_step))
    if device.type == "cpu":
        return ModelFacts(compiled=compiled, cpu_bfloat16=cpu_multiplies_bfloat16())
    if device.type != "cuda":
        return ModelFacts(compiled=compiled)
    properties = torch.cuda.get_device_properties(device)
    return ModelFacts(
        compiled=compiled,
        peak_device_bytes=max(0, torch.cuda.max_memory_allocated(device) - ours_bytes),
        device_bytes=int(properties.total_memory),
        device_free_bytes=int(torch.cuda.mem_get_info(device)[0]) + ours_bytes,
        # On AMD's devices these two numbers mean something else.
        device_capability=(properties.major, properties.minor) if torch.version.hip is None else None,
    )


def _looks_compiled(part: Any) -> bool:
    state = getattr(part, "__dict__", {})
    if state.get("_compiled_call_impl") is not None or "_torchdynamo_orig_callable" in state:
        return True
    dynamo = sys.modules.get("torch._dynamo.eval_frame")  # importing it would take seconds
    return dynamo is not None and isinstance(part, dynamo.OptimizedModule)


def cpu_multiplies_bfloat16(proc: Path = PROC) -> bool | None:
    """Whether the processor multiplies bfloat16 in hardware; None where that is unknown."""
    flags = read_cpuinfo("flags", "features", proc=proc)
    return None if flags is None else any(flag in flags.split() for flag in _BFLOAT16_FLAGS)
