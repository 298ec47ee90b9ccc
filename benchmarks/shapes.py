"""Efficiency where batches are not all alike: grouped by length, at several scales, or growing slowly.

The step takes time by the length of its batch, so that the first batches say little about the others.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.checks import find_by_name
from benchmarks.datasets import Images, Load, Step
from benchmarks.efficiencies import command
from benchmarks.uneven import BATCH_SIZE, LENGTH
from benchmarks.work import Work, wait

USUAL_LENGTH = 64
"""With which a step takes its `step_s`, and about the average of all batches but those of a curriculum."""
LONGEST = 256
LONG_BATCHES = 24
BATCHES_A_SCALE = 10
BATCHES_TO_DOUBLE = 30_000
"""A plain loop of a minute comes through thousands of batches, a diagnosis through hundreds: they are to be alike."""
_SCALES = (24, 40, 56, 72, 88, 104)
_SEED = 31


@dataclass(frozen=True)
class ShapedJob:
    """A job whose batches have lengths of their own.

    Attributes:
        name: By which it is found.
        what: For people.
        lengths: The length of each batch, by its number.
        num_workers: Worker processes.
        worker_batch_s: What a worker takes for a batch of the usual length.
        step_s: What the step takes for one.
        loads_by_length: Whether a worker's time goes with the length, too.
    """

    name: str
    what: str
    lengths: Callable[[int], int]
    num_workers: int
    worker_batch_s: float
    step_s: float
    loads_by_length: bool = True

    def build(self, **changes: Any) -> dict[str, Any]:
        """The fields of the pipeline, as a user's `build` returns them."""
        load = wait(self.worker_batch_s / BATCH_SIZE)
        fields = {
            "dataset": Sequences(LENGTH, load, self.lengths, by_length=self.loads_by_length),
            "train_step": StepByLength(wait(self.step_s)),
            "device": "cpu",
            "batch_size": BATCH_SIZE,
            "num_workers": self.num_workers,
            "drop_last": True,
        }
        return {**fields, **changes}


class Sequences(Images):
    """Sequences whose length is that of their batch."""

    def __init__(self, length: int, load: Work, lengths: Callable[[int], int], *, by_length: bool) -> None:
        super().__init__(length, load, Work("wait", 0.0))
        self.loader = LoadSequence(load, lengths, by_length=by_length)


class LoadSequence(Load):
    """A loader of sequences."""

    def __init__(self, work: Work, lengths: Callable[[int], int], *, by_length: bool) -> None:
        super().__init__(work)
        self.lengths, self.by_length = lengths, by_length

    def __call__(self, path: str) -> torch.Tensor:
        mark = self.work.begin()
        index = int(path.rpartition("-")[2])
        length = self.lengths(index // BATCH_SIZE)
        sequence = torch.arange(length).add_(index).remainder_(251).to(torch.uint8)
        self.work.complete(mark, length / USUAL_LENGTH if self.by_length else 1.0)
        return sequence


class StepByLength(Step):
    """A train step that takes longer for longer batches."""

    def times(self, batch: Any) -> float:
        """Return the factor on the time of a batch of the usual length."""
        return int(batch[0].shape[-1]) / USUAL_LENGTH


def longest_first(batch: int) -> int:
    """As where batches are grouped by length: the longest come first, to see whether memory will do."""
    return LONGEST if batch < LONG_BATCHES else mixed(batch)


def mixed(batch: int) -> int:
    """Each batch has another length."""
    return random.Random(_SEED << 40 | batch).choice(_SCALES)


def scaled(batch: int) -> int:
    """The scale changes every ten batches."""
    return mixed(batch // BATCHES_A_SCALE)


def growing(batch: int) -> int:
    """A curriculum: short ones first, and slowly longer ones."""
    return min(LONGEST, round(USUAL_LENGTH / 2 * (1 + batch / BATCHES_TO_DOUBLE)))


SHAPES: tuple[ShapedJob, ...] = (
    ShapedJob("grouped", "the 24 longest batches first", longest_first, 2, 0.0435, 0.020),
    ShapedJob("grouped-kept-up", "the same, workers fast enough", longest_first, 4, 0.050, 0.020),
    ShapedJob("mixed", "each batch another length", mixed, 4, 0.090, 0.020),
    ShapedJob("scales", "another scale every ten batches", scaled, 2, 0.036, 0.020, loads_by_length=False),
    ShapedJob("scales-many", "the same with eight workers", scaled, 8, 0.160, 0.020, loads_by_length=False),
    ShapedJob("curriculum", "slowly growing", growing, 2, 0.0435, 0.020),
)


def find_job(name: str) -> ShapedJob:
    """The job of that name."""
    return find_by_name(SHAPES, name)


if __name__ == "__main__":
    command("benchmarks.shapes", find_job)()
