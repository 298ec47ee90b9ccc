"""Batches per update of the weights, as the optimizers of a train step show while it warms up."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from bottleneck.measure.keep.search import Search

_MAX_BATCHES = 64
_MAX_S = 1.0
"""Seconds for finding a second update."""


def holds_optimizer(*roots: object) -> bool:
    """Return True if any of some objects is or contains an optimizer, as the train step of most jobs does."""
    search = Search()
    search.walk({"the job": roots})
    return bool(search.all(torch.optim.Optimizer))


class Updates:
    """Counter of updates while it is entered.

    Args:
        are_expected: True if there is an optimizer: one without a step so far may accumulate gradients.
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float], *, are_expected: bool) -> None:
        self._are_expected = are_expected
        self._clock = clock
        self._batches = 0
        self._updated_at: list[int] = []
        """Numbers of batches before each update: a step may step several optimizers."""

    def __enter__(self) -> Updates:
        self._hook = register_optimizer_step_post_hook(self._updated)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _updated(self, *_: object) -> None:
        if self._batches not in self._updated_at:
            self._updated_at.append(self._batches)

    def watch(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a train step whose batches are counted."""

        def counted(batch: Any) -> Any:
            self._batches += 1
            return step(batch)

        return counted

    def catch_up(self, step: Callable[[], object]) -> None:
        """Run more steps until a second update is seen, if one is to come soon."""
        until_s = self._clock() + _MAX_S
        for _ in range(_MAX_BATCHES):
            is_open = len(self._updated_at) < 2 and bool(self._are_expected or self._updated_at)
            if not is_open or self._clock() > until_s:
                return
            step()

    @property
    def batches_each(self) -> int:
        """Return the batches per update; 1 if fewer than two updates were seen."""
        return statistics.median_low([b - a for a, b in itertools.pairwise(self._updated_at)] or [1])
