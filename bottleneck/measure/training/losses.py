"""Whether training stays sound: losses that are not finite, and steps that a gradient scaler skips.

Both are read between blocks, when the device is idle; a step only keeps its loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from bottleneck.measure.describe import describe_arm
from bottleneck.measure.ladder import Arm, Ladder

_FEWEST_WITH_SKIPS, _SHARE_WITH_SKIPS = 2, 0.05
"""Blocks with a skipped step from which on it is more than a scaler that tries a larger scale now and then."""


class Losses:
    """Checks the last loss of each block with the train step."""

    def __init__(self) -> None:
        self._last: Any = None
        self._scales: list[float] = []
        self._blocks = 0
        self._not_finite: list[tuple[Arm, int]] = []
        self._skipping: list[tuple[Arm, int]] = []

    def keep(self, returned: Any) -> None:
        """Keep the loss in what a step returned, if there is one; does not wait for the device."""
        self._last = loss_in(returned)

    def begin_block(self, scalers: tuple[Any, ...]) -> None:
        """Note the scales, and forget the loss of the block before."""
        self._last = None
        self._scales = [scaler.get_scale() for scaler in scalers]

    def end_block(self, scalers: tuple[Any, ...], arm: Arm, round_: int) -> None:
        """Check the last loss and the scales; the device has to be idle."""
        last, self._last = self._last, None
        if not arm.coupled:
            return
        self._blocks += 1
        if last is not None and not is_finite(last):
            self._not_finite.append((arm, round_))
        now = [scaler.get_scale() for scaler in scalers]
        if any(scale < before for before, scale in zip(self._scales, now, strict=False)):
            self._skipping.append((arm, round_))

    def warnings(self, ladder: Ladder) -> Iterator[tuple[str, str]]:
        """Yield id and message of each reason not to trust the training."""
        if self._not_finite:
            yield (
                "loss-not-finite",
                f"The loss was not finite at the end of {self._where(self._not_finite, ladder)}. The diagnosis trains "
                "on few batches, so it may be of its making; but such steps may be quicker or slower than others, and "
                "a gradient scaler skips the optimizer's part of them. See whether the loss of the job itself is "
                "finite, or diagnose with a smaller learning rate.",
            )
        if len(self._skipping) >= max(_FEWEST_WITH_SKIPS, _SHARE_WITH_SKIPS * self._blocks):
            yield (
                "steps-skipped",
                f"The gradient scaler lowered its scale in {self._where(self._skipping, ladder)}: it skipped the "
                "optimizer's part of those steps, which are quicker for it. Begin with a smaller init_scale, as the "
                "job has after its first steps, or use bfloat16, which needs none.",
            )

    def _where(self, seen: list[tuple[Arm, int]], ladder: Ladder) -> str:
        arm, round_ = seen[0]
        return (
            f"{len(seen)} of {self._blocks} blocks with the train step, first in round {round_}, experiment "
            f"{describe_arm(arm, ladder)}"
        )


def is_finite(loss: torch.Tensor | float) -> bool:
    """Whether a loss is a finite number; waits for the device."""
    if isinstance(loss, torch.Tensor):
        return loss.is_meta or bool(torch.isfinite(loss).all())
    return math.isfinite(loss)


def loss_in(returned: Any) -> torch.Tensor | float | None:
    """Return the loss in what a step returned, if there is one; does not wait for the device."""
    if returned is None or type(returned) is float:
        return returned
    try:
        loss = returned if isinstance(returned, torch.Tensor) else _called_loss(returned)
    except Exception:  # noqa: BLE001 - a step may return anything, and reading it must not fail
        return None
    if isinstance(loss, torch.Tensor):
        # Without its graph, which may keep what a step computed until the next one has computed the same.
        return loss.detach() if loss.numel() == 1 else None
    return loss if isinstance(loss, float) else None


def _called_loss(returned: Any) -> Any:
    """Return what a step calls its loss, from one of the usual containers or else as an attribute."""
    if isinstance(returned, Mapping):
        return returned.get("loss")
    if isinstance(returned, tuple | list):
        return returned[0] if returned else None
    return getattr(returned, "loss", None)
