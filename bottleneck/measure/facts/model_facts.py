"""Facts about the model and the device, read and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from bottleneck.measure.device import free_device_bytes
from bottleneck.measure.rounds.new_shapes import graphs_compiled
from bottleneck.measure.system.cgroup import PROC
from bottleneck.measure.system.environment import read_cpuinfo
from bottleneck.results.evidence import ModelFacts

_BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
"""As /proc/cpuinfo names processors that multiply bfloat16 in hardware: x86, x86 and Arm."""


def describe_model(device: torch.device, computed_dtypes: Mapping[str, int], ours_bytes: int = 0) -> ModelFacts:
    """Describe what the rules on computing need to know.

    Args:
        device: Where the job trains.
        computed_dtypes: Traced matrix products and convolutions, by type.
        ours_bytes: Device memory that the diagnosis itself held while the job trained; the job does not need it.
    """
    facts = ModelFacts(compiled=graphs_compiled() > 0, computed_dtypes=computed_dtypes or None)
    if device.type == "cpu":
        return replace(facts, cpu_bfloat16=cpu_multiplies_bfloat16())
    if device.type != "cuda":
        return facts
    properties, free = torch.cuda.get_device_properties(device), free_device_bytes(device)
    return replace(
        facts,
        peak_device_bytes=max(0, torch.cuda.max_memory_allocated(device) - ours_bytes),
        device_bytes=int(properties.total_memory),
        device_free_bytes=None if free is None else free + ours_bytes,
        # On AMD's devices these two numbers mean something else.
        device_capability=(properties.major, properties.minor) if torch.version.hip is None else None,
    )


def cpu_multiplies_bfloat16(proc: Path = PROC) -> bool | None:
    """Whether the processor multiplies bfloat16 in hardware; None where that is unknown."""
    flags = read_cpuinfo("flags", "features", proc=proc)
    return None if flags is None else any(flag in flags.split() for flag in _BFLOAT16_FLAGS)
