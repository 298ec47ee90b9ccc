"""Mixed precision: bfloat16, or float16 with a gradient scaler."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of, with_step_options
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.steps import LowPrecision, LowPrecisionCall, low_precision, no_cuda, no_default_step

_SOURCE = "https://docs.pytorch.org/docs/stable/amp.html"


def _why_not_bfloat16(here: Here) -> str | None:
    step, model = here.pipeline.train_step, here.pipeline.model
    if step is None and not isinstance(model, nn.Module):
        return "the model is no torch.nn.Module"
    if low_precision(here) is not None:
        return "the job computes in a lower precision already"
    # torch.cuda.is_bf16_supported() is true of older devices too, which emulate it.
    if here.device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(here.device) < (8, 0):
        return "this device does not compute in bfloat16"
    return None


def _why_not_float16(here: Here) -> str | None:
    if (why := no_cuda(here) or no_default_step(here)) is not None:
        return why
    return "the job computes in a lower precision already" if low_precision(here) is not None else None


def _autocast(dtype: torch.dtype, pipeline: Pipeline) -> Pipeline:
    kind = device_of(pipeline).type
    if pipeline.train_step is not None:  # a step of the user's: only what is around it can be changed
        return pipeline.replace(train_step=LowPrecisionCall(pipeline.train_step, kind, dtype))
    loss: Any = pipeline.loss_fn
    loss = None if loss is None else LowPrecisionCall(loss, kind, dtype)
    return pipeline.replace(model=LowPrecision(pipeline.model, kind, dtype), loss_fn=loss)


def _scaled(pipeline: Pipeline) -> Pipeline:
    scaler = torch.amp.GradScaler(device_of(pipeline).type)
    return with_step_options(_autocast(torch.float16, pipeline), scaler=scaler)


CHANGES = (
    Change(
        "autocast", partial(_autocast, torch.bfloat16), on="step",
        line="with torch.autocast(device.type, dtype=torch.bfloat16): loss = loss_fn(model(inputs), targets)",
        advice=("mixed-precision",), why_not=_why_not_bfloat16, source=_SOURCE,
    ),
    Change(
        "fp16", _scaled, on="step",
        line="scaler = torch.amp.GradScaler(device.type)\n"
        "with torch.autocast(device.type, dtype=torch.float16): loss = loss_fn(model(inputs), targets)\n"
        "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
        advice=("mixed-precision",), why_not=_why_not_float16,
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
)  # fmt: skip
