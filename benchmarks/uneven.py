"""A loader whose batches take uneven times, the same ones in every run: a sample's time is drawn by its index.

It waits, so that many workers do with few cores. `benchmarks.regimes` and the tests plant it.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.datasets import Images, Load, Step, make_image
from benchmarks.work import Work, wait

LENGTH = 10_000_000
"""Samples: neither a plain loop of minutes nor a diagnosis comes to the end, or to a sample a second time."""
BATCH_SIZE = 4
_SEED = 12


@dataclass(frozen=True)
class UnevenLoader:
    """A job whose workers wait for uneven times, and whose step sleeps.

    Attributes:
        num_workers: Worker processes.
        worker_batch_s: What one worker takes to load a batch, on average.
        cv: Standard deviation of that over its average.
        step_s: What the step takes.
        prefetch_factor: Batches that a worker may be ahead.
        augment_s: What the augmentation adds to a worker's time for a batch, always the same.
    """

    num_workers: int
    worker_batch_s: float
    cv: float
    step_s: float
    prefetch_factor: int = 2
    augment_s: float = 0.0

    def build(self, **changes: Any) -> dict[str, Any]:
        """The fields of the pipeline, as a user's `build` returns them.

        Args:
            **changes: Fields to replace.
        """
        # The time of a batch is a sum over its samples, which have to be the more uneven.
        cv = self.cv * math.sqrt(BATCH_SIZE)
        load, augment = (wait(seconds / BATCH_SIZE) for seconds in (self.worker_batch_s, self.augment_s))
        fields = {
            "dataset": UnevenImages(LENGTH, load, augment, cv),
            "train_step": Step(wait(self.step_s)),
            "device": "cpu",
            "batch_size": BATCH_SIZE,
            "num_workers": self.num_workers,
            "prefetch_factor": self.prefetch_factor,
            "drop_last": True,
        }
        return {**fields, **changes}


class UnevenImages(Images):
    """Small images; loading one waits for a time that depends on its index.

    Args:
        length: Samples.
        load: What loading one takes on average.
        augment: What its augmentation takes.
        cv: Standard deviation of the time for loading over its average.
    """

    def __init__(self, length: int, load: Work, augment: Work, cv: float) -> None:
        super().__init__(length, load, augment)
        self.loader = LoadUneven(load, cv)


class LoadUneven(Load):
    """A loader that takes longer for some images than for others."""

    def __init__(self, work: Work, cv: float) -> None:
        super().__init__(work)
        self.cv = cv

    def __call__(self, path: str) -> torch.Tensor:
        mark = self.work.begin()
        image = make_image(path)
        self.work.complete(mark, factor(int(path.rpartition("-")[2]), self.cv))
        return image


def factor(index: int, cv: float, seed: int = _SEED) -> float:
    """By how much the time of a sample differs from the average: log-normal, with a mean of 1.

    Args:
        index: Of the sample.
        cv: Standard deviation of the factors.
        seed: Another one gives other times.
    """
    if cv == 0:
        return 1.0
    variance = math.log1p(cv * cv)
    return random.Random(seed << 40 | index).lognormvariate(-variance / 2, math.sqrt(variance))
