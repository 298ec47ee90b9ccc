"""Whether training stays sound meanwhile: losses that are not finite, and steps that a gradient scaler skips.

Both are looked at between blocks, where the device has been waited for; a step costs no more than keeping its loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from bottleneck.measure.arms import Arm, Ladder
from bottleneck.measure.describe import describe_arm

_FEWEST_WITH_SKIPS, _SHARE_WITH_SKIPS = 2, 0.05
"""A scaler tries a larger scale now and then, and skips a step; blocks from which on it is more than that."""


class Losses:
    """Looks at the last loss of each block with the train step."""

    def __init__(self) -> None:
        self._last: Any = None
        self._scales: list[float] = []
        self._blocks = 0
        self._not_finite: list[tuple[Arm, int]] = []
        self._skipping: list[tuple[Arm, int]] = []

    def keep(self, returned: Any) -> None:
        """Keep the loss among what a step returned, if there is one; waits for nothing."""
        loss = _loss_in(returned)
        # Without its graph: that may hold on to what a step computed until the next one has computed the same.
        self._last = loss.detach() if isinstance(loss, torch.Tensor) and loss.requires_grad else loss

    def begin_block(self, scalers: tuple[Any, ...]) -> None:
        """Note the scales, and let go of what was before."""
        self._last = None
        self._scales = [scaler.get_scale() for scaler in scalers]

    def end_block(self, scalers: tuple[Any, ...], arm: Arm, round_: int) -> None:
        """Look at the last loss and at the scales; the device must have been waited for."""
        last, self._last = self._last, None
        if not arm.coupled:
            return
        self._blocks += 1
        if last is not None and not math.isfinite(last):  # a tensor is read by this
            self._not_finite.append((arm, round_))
        now = [scaler.get_scale() for scaler in scalers]
        if any(scale < before for before, scale in zip(self._scales, now, strict=False)):
            self._skipping.append((arm, round_))

    def warnings(self, ladder: Ladder) -> Iterator[tuple[str, str]]:
        """Yield id and message of what was seen."""
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


def _loss_in(returned: Any) -> Any:
    """Return the one number that a step returned as its loss; None where there is none."""
    if not isinstance(returned, torch.Tensor):
        if isinstance(returned, Mapping):
            returned = returned.get("loss")
        elif isinstance(returned, tuple | list):
            returned = returned[0] if returned else None
        else:
            returned = getattr(returned, "loss", returned)
    if isinstance(returned, torch.Tensor):
        return returned if returned.numel() == 1 and not returned.is_complex() and not returned.is_meta else None
    return returned if isinstance(returned, float) else None
