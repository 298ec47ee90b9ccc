"""Losses of a loop: the scalers of their gradients, and the loss at which a script ended."""

from __future__ import annotations

import contextlib
import gc
import math
import re
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from bottleneck.measure.training import is_finite

_UNTIL_NOW = re.compile("best|min|low", re.IGNORECASE)
"""Part of the name of a variable that is infinite before the first loss."""


def gradient_scalers() -> tuple[torch.amp.GradScaler, ...]:
    """Return all gradient scalers of the process: in a loop they are variables, to which nothing else refers."""
    # type() and not isinstance(): lazy proxies answer isinstance() by loading their object.
    return tuple(found for found in gc.get_objects() if issubclass(type(found), torch.amp.GradScaler))


def loss_at_end(error: BaseException | None, last: torch.Tensor | float | None) -> str | None:
    """Return the non-finite loss with which a script has ended itself, as in `loss = nan`; None if all are finite.

    Args:
        error: Exception that ended it. Many scripts check their loss before the backward pass: it is a variable then.
        last: The loss of the last backward pass; None: unknown.
    """
    for frame in _frames(error):
        for name, value in frame.f_locals.items():
            number = _number(value) if "loss" in name.lower() else 0.0
            if math.isnan(number) or (math.isinf(number) and not _UNTIL_NOW.search(name)):
                return f"{name} = {number}"
    with contextlib.suppress(RuntimeError):  # from a device that can no longer be used
        if last is not None and not is_finite(last):
            return f"loss = {_number(last)}"
    return None


def _frames(error: BaseException | None) -> Iterator[FrameType]:
    """Yield the frames that an exception has left, the innermost first."""
    frames, trace = [], None if error is None else error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    yield from reversed(frames)


def _number(value: Any) -> float:
    """Return a number, or the only element of a tensor; 0 for anything else."""
    if type(value) is float:
        return value
    with contextlib.suppress(Exception):  # any kind of tensor, on any device
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            return float(value.detach())
    return 0.0
