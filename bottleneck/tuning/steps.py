"""What changes to the train step share: whose step it is, in which precision it computes, what is set around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bottleneck.tuning.change import Here

IMAGE_DIMENSIONS = 4


def no_default_step(here: Here) -> str | None:
    """Why a change to a model, its loss and its optimizer does not apply; None where the step is made of them."""
    if here.pipeline.train_step is not None:
        return "the train step is your own: change it there"
    return None if isinstance(here.pipeline.model, nn.Module) else "the model is no torch.nn.Module"


def no_cuda(here: Here) -> str | None:
    """Why a change for CUDA devices does not apply; None on one."""
    return None if here.device.type == "cuda" else f"the job trains on {here.device.type}, not on a CUDA device"


def parts_of_model(model: Any) -> list[nn.Module]:
    """A model and all modules inside; none of a plain function."""
    return list(model.modules()) if isinstance(model, nn.Module) else []


class Wrapper(nn.Module):
    """Calls a module, whose parameters it shares, in another way."""

    captures = ""
    """What it makes of the whole module, so that no other wrapper can: `compiled`."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.training = inner.training


def captured(model: Any) -> str:
    """What another change has made of all of the model: `compiled`; empty where none has."""
    wrappers = [module for module in parts_of_model(model) if isinstance(module, Wrapper)]
    return next((wrapper.captures for wrapper in wrappers if wrapper.captures), "")


class LowPrecision(Wrapper):
    """Calls a module under autocast."""

    def __init__(self, inner: nn.Module, device_type: str, dtype: torch.dtype) -> None:
        super().__init__(inner)
        self.dtype, self._device_type = dtype, device_type

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """What the module gives."""
        with torch.autocast(self._device_type, self.dtype):
            return self.inner(*arguments, **keywords)


class LowPrecisionCall:
    """Calls a function under autocast."""

    def __init__(self, inner: Callable[..., Any], device_type: str, dtype: torch.dtype) -> None:
        self.inner, self.dtype, self._device_type = inner, dtype, device_type

    def __call__(self, *arguments: Any) -> Any:
        with torch.autocast(self._device_type, self.dtype):
            return self.inner(*arguments)


def low_precision(here: Here) -> torch.dtype | None:
    """The 16-bit type that the job computes in already; None where it computes in float32."""
    pipeline = here.pipeline
    wrapped = [*parts_of_model(pipeline.model), pipeline.train_step]
    dtypes = [each.dtype for each in wrapped if isinstance(each, LowPrecision | LowPrecisionCall)]
    model = pipeline.model
    dtypes += [p.dtype for p in model.parameters()] if isinstance(model, nn.Module) else []
    if torch.is_autocast_enabled(here.device.type):
        dtypes.append(torch.get_autocast_dtype(here.device.type))
    return next((dtype for dtype in dtypes if dtype in (torch.bfloat16, torch.float16)), None)


@dataclass(frozen=True)
class ProcessSetting:
    """A context with another value of a setting of the process; the variants of a job take turns in one process."""

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
