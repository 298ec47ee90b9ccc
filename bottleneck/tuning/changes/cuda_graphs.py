"""The model's forward and backward pass as CUDA graphs, which are recorded once and launched as a whole."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from bottleneck.errors import MeasurementError
from bottleneck.job.pipeline import Pipeline
from bottleneck.tuning.change import Change, Here
from bottleneck.tuning.steps import ProcessSetting, Wrapper, captured, no_cuda, no_default_step

_RECORDING_S = 50.0
"""It comes after compiling, which can do the same and more."""


class _Graphed(Wrapper):
    """Calls a module as it was recorded with the first batch, and as it is with batches of another shape.

    Raises:
        MeasurementError: It takes something else than tensors.
    """

    captures = "recorded as CUDA graphs"

    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self._shapes: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Graphed:
        # What is recorded belongs to the memory of one module.
        return _Graphed(copy.deepcopy(self.inner, memo))

    def forward(self, *tensors: Any, **keywords: Any) -> Any:
        """What the module gives."""
        if keywords or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            raise MeasurementError("The model takes something else than tensors by position.", "Record its parts.")
        shapes = [(tensor.shape, tensor.dtype) for tensor in tensors]
        if self._shapes is None:
            # Past the registration of modules: it has the same parameters.
            vars(self)["_recorded"], self._shapes = _record(self.inner, tensors), shapes
        return vars(self)["_recorded"](*tensors) if shapes == self._shapes else self.inner(*tensors)


class _Passing(Wrapper):
    """Calls a module by position; it is this one whose `forward` is replaced."""

    def forward(self, *tensors: torch.Tensor) -> Any:
        """What the module gives."""
        return self.inner(*tensors)


def _graphs_by(made: Callable[..., Any]) -> ProcessSetting:
    return ProcessSetting(lambda: torch.cuda.graph, lambda value: setattr(torch.cuda, "graph", value), made)


def _record(inner: nn.Module, tensors: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    # What other threads ask of the driver at that time, such as to pin a batch, must be no error there or here.
    mode: dict[str, Any] = {"capture_error_mode": "thread_local"}
    record: Any = torch.cuda.make_graphed_callables
    if "capture_error_mode" in inspect.signature(record).parameters:
        record = partial(record, **mode)
    samples = tuple(tensor.clone() for tensor in tensors)
    caches = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # what a graph computes with must not lie in a cache outside of it
    try:
        with _graphs_by(partial(torch.cuda.graph, **mode))():  # older versions take no mode
            recorded: Callable[..., Any] = record(_Passing(inner), samples)
    finally:
        torch.set_autocast_cache_enabled(caches)
    return recorded


def _why_not(here: Here) -> str | None:
    if (why := no_cuda(here) or no_default_step(here)) is not None:
        return why
    made = captured(here.pipeline.model)
    return f"the model is {made} already" if made else None


def _graphed(pipeline: Pipeline) -> Pipeline:
    return pipeline.replace(model=_Graphed(pipeline.model))


CHANGES = (
    Change(
        "cuda_graphs", _graphed, on="step", alters="memory",
        line="model = torch.cuda.make_graphed_callables(model, (images,))", advice=("compile",),
        why_not=_why_not, least_s=_RECORDING_S,
        source="https://docs.pytorch.org/docs/stable/generated/torch.cuda.make_graphed_callables.html",
    ),
)  # fmt: skip
