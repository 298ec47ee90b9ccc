"""The batches that a train step takes for one update of the weights, as its optimizers show while it warms up."""

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
"""What may be spent on seeing a second update."""


def holds_optimizer(*roots: object) -> bool:
    """Whether any of some objects is an optimizer, or holds one, as the train step of most jobs does."""
    search = Search()
    search.walk({"the job": roots})
    return bool(search.all(torch.optim.Optimizer))


class Updates:
    """Counts updates while it is entered.

    Args:
        are_expected: There is an optimizer: one that has not made a step yet may gather gradients.
        clock: Seconds from any beginning.
    """

    def __init__(self, clock: Callable[[], float], *, are_expected: bool) -> None:
        self._are_expected = are_expected
        self._clock = clock
        self._batches = 0
        self._updated_at: list[int] = []
        """After how many batches: a step may step several optimizers."""

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
        """Do more steps until a second update was seen, where there is one to come, and it comes soon."""
        until_s = self._clock() + _MAX_S
        for _ in range(_MAX_BATCHES):
            is_open = len(self._updated_at) < 2 and bool(self._are_expected or self._updated_at)
            if not is_open or self._clock() > until_s:
                return
            step()

    @property
    def batches_each(self) -> int:
        """The batches of an update; 1 where fewer than two were seen."""
        return statistics.median_low([b - a for a, b in itertools.pairwise(self._updated_at)] or [1])
