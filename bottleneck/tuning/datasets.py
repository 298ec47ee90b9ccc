"""Datasets that are changed without touching the user's: the one inside of subsets, and whether both give the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Subset

from bottleneck.measure.preserve.process import keep_random
from bottleneck.measure.preserve.restoration import Notes


def inside_subsets(dataset: Any) -> Any:
    """The dataset itself, which the indices of subsets lead to."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def with_changed_inside(dataset: Any, change: Callable[[Any], None]) -> Any:
    """A shallow copy of a dataset, and of the subsets around it, to which something is done."""
    changed = copy.copy(dataset)
    if isinstance(changed, Subset):
        changed.dataset = with_changed_inside(changed.dataset, change)
    else:
        change(changed)
    return changed


def with_the_same_random(*calls: Callable[[], Any]) -> list[Any]:
    """What each call gives with the random numbers as they are now, and put back."""
    random = keep_random(torch.device("cpu"), Notes())
    given = []
    try:
        for call in calls:
            given.append(call())
            for kept in random:
                kept.restore()
    finally:
        for kept in random:
            kept.restore()
    return given
