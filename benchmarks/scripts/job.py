"""The data of the bench's scripts, and the code with which each reports its own speed.

Nothing here knows of `bottleneck`. Two variables of the environment are for the plain measurements: with
`BENCH_SECONDS` a script ends after so many seconds of steady training and prints what a batch took; with `BENCH_CACHED`
it is given one batch again and again, which costs nothing.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, default_collate

BATCH_SIZE = 16
CACHED = "BENCH_CACHED" in os.environ
_SECONDS = float(os.environ.get("BENCH_SECONDS", "0"))
_STEP_S = 0.020
_WARM_UP = 48
_AT_ONCE = 4
"""Batches that a loop takes at once, at most; the measuring begins and ends between two such groups."""
_ends_s: list[float] = []

torch.set_num_threads(1)


class Wait:
    """A stage of a sample that leaves the cores free, as a disk or an accelerator does."""

    def __init__(self, s_per_batch: float) -> None:
        self.seconds = s_per_batch / BATCH_SIZE

    def __call__(self, value: Any) -> Any:
        if self.seconds:
            time.sleep(self.seconds)
        return value


class Photos(Dataset[Any]):
    """Shaped like torchvision's; an epoch is longer than any measuring."""

    def __init__(self, load_s: float = 0.0, augment_s: float = 0.0) -> None:
        self.loader, self.transform = Wait(load_s), Wait(augment_s)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        image = self.loader(torch.full((3, 16, 16), float(index % 7)))
        return self.transform(image), index % 10


class _Cached(Dataset[Any]):
    """Samples that cost nothing."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> None:
        """Give nothing: the batch is there."""


def inputs(
    dataset: Dataset[Any], num_workers: int, collate: Callable[[list[Any]], Any] = default_collate
) -> tuple[Dataset[Any], int, Callable[[list[Any]], Any]]:
    """Return dataset, workers and collate function of a loader: unchanged, or those of one cached batch."""
    if not CACHED:
        return dataset, num_workers, collate
    batch = collate([dataset[index] for index in range(BATCH_SIZE)])
    return _Cached(), 0, lambda _: batch


def make_model() -> nn.Module:
    """A small model: what takes time is `compute`."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 10))


def compute(seconds: float = _STEP_S) -> None:
    """Return the device's time for a batch."""
    time.sleep(seconds)
    if _SECONDS:
        _ends_s.append(time.perf_counter())
        _tell_when_known()


def _tell_when_known() -> None:
    batches = len(_ends_s) - _WARM_UP
    if batches <= 0 or batches % _AT_ONCE:
        return
    seconds = _ends_s[-1] - _ends_s[_WARM_UP - 1]
    if seconds >= _SECONDS:
        print(json.dumps({"s_per_batch": seconds / batches}), flush=True)
        for child in multiprocessing.active_children():
            child.terminate()
        os._exit(0)
