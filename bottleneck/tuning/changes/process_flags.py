"""Settings of the process that a train step on a CUDA device computes with; they hold during its steps only."""

from __future__ import annotations

import torch
from torch import nn

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import with_step_options
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.steps import ProcessSetting, no_cuda, parts_of_model

_CONVOLUTIONS = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
_TF32_CAPABILITY = (8, 0)


# --- products of float32 in TF32 --------------------------------------------------------------------------


def _why_no_tf32(here: Here) -> str | None:
    if (why := no_cuda(here)) is not None:
        return why
    if torch.version.hip or torch.cuda.get_device_capability(here.device) < _TF32_CAPABILITY:
        return "this device does not compute in TF32"
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # refused beside newer settings
        return "the job chooses the precision by fp32_precision already"
    return None if precision == "highest" else "products are computed in TF32 already"


def _tf32(pipeline: Pipeline) -> Pipeline:
    return with_step_options(
        pipeline, ProcessSetting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high")
    )


# --- convolutions by the fastest of cuDNN's algorithms ------------------------------------------------------


def _why_no_benchmark(here: Here) -> str | None:
    if (why := no_cuda(here)) is not None:
        return why
    if torch.backends.cudnn.benchmark:
        return "cudnn.benchmark is on already"
    if torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled():
        return "the job asks for deterministic algorithms"
    parts = parts_of_model(here.pipeline.model)
    # Of a model that is not named nothing is known: it is tried.
    return "the model has no convolution" if parts and not any(isinstance(m, _CONVOLUTIONS) for m in parts) else None


_KEEPS_PLANS = (
    "a process keeps the plans that cuDNN chose first, whatever the flag is later. Write "
    "torch.backends.cudnn.benchmark = True at the beginning of the job, and compare the two"
)


CHANGES = (
    Change(
        "tf32", _tf32, on="step", line='torch.set_float32_matmul_precision("high")',
        why_not=_why_no_tf32,
        source="https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",
    ),
    Change(
        "cudnn_benchmark", lambda pipeline: pipeline, on="step", alters="memory",
        line="torch.backends.cudnn.benchmark = True", why_not=_why_no_benchmark, by_hand=_KEEPS_PLANS,
        source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    ),
)  # fmt: skip
