"""Images whose channels lie beside each other in memory."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from bottleneck.job.pipeline import Pipeline
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.steps import IMAGE_DIMENSIONS, Wrapper, no_default_step


class _ChannelsLast(Wrapper):
    """Calls a module with its images in that format."""

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """What the module gives."""
        return self.inner(*map(_formatted, arguments), **{k: _formatted(v) for k, v in keywords.items()})


def _formatted(value: Any) -> Any:
    is_image = isinstance(value, torch.Tensor) and value.dim() == IMAGE_DIMENSIONS
    return value.contiguous(memory_format=torch.channels_last) if is_image else value


def _why_not(here: Here) -> str | None:
    if (why := no_default_step(here)) is not None:
        return why
    weights = [m.weight for m in here.pipeline.model.modules() if isinstance(m, nn.Conv2d)]
    if not weights:
        return "the model has no two-dimensional convolution"
    # Of a kernel of one pixel, or of one channel, both formats are the same.
    known = [w for w in weights if w.dim() == IMAGE_DIMENSIONS and w.shape[1] > 1 and w.shape[2] * w.shape[3] > 1]
    if known and all(w.is_contiguous(memory_format=torch.channels_last) for w in known):
        return "the model is in channels_last already"
    return None


def _in_channels_last(pipeline: Pipeline) -> Pipeline:
    # A copy: the weights of the job itself keep their memory.
    model, optimizer = copy.deepcopy((pipeline.model, pipeline.optimizer))
    model.to(memory_format=torch.channels_last)
    # The fused and foreach implementations of optimizers want one format for a weight and its state.
    for state in getattr(optimizer, "state", {}).values():
        state.update({key: _formatted(value) for key, value in state.items()})
    return pipeline.replace(model=_ChannelsLast(model), optimizer=optimizer)


CHANGES = (
    Change(
        "channels_last", _in_channels_last, on="step", alters="nothing",
        line="model = model.to(memory_format=torch.channels_last)\n"
        "images = images.to(memory_format=torch.channels_last)",
        why_not=_why_not,
        source="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
    ),
)  # fmt: skip
