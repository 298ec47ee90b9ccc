"""The job that GPUs have: 256 pictures a batch, a second or more of work for a worker, a step of 100 to 200 ms.

Workers and step sleep, so that sixteen of them do on two cores. `python -m benchmarks.slow_batches NAME` times the
plain loops of one and diagnoses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from benchmarks.checks import find_by_name
from benchmarks.datasets import CLASSES, Step
from benchmarks.work import Work, wait

BATCH_SIZE, SIDE, LENGTH = 256, 112, 10_000_000


@dataclass(frozen=True)
class SlowBatches:
    """A job whose workers take a second or more for a batch.

    Attributes:
        num_workers: Worker processes.
        load_s: Wait for each picture.
        augment_s: Wait for the augmentation of each.
        step_s: Time of a step.
    """

    num_workers: int
    load_s: float
    augment_s: float
    step_s: float

    @property
    def name(self) -> str:
        """Such as `w3-load3-augment5-step138`, in ms."""
        load, augment, step = (f"{seconds * 1e3:.3g}" for seconds in (self.load_s, self.augment_s, self.step_s))
        return f"w{self.num_workers}-load{load}-augment{augment}-step{step}"

    @property
    def worker_batch_s(self) -> float:
        """Planned time of a worker for a batch [s]."""
        return BATCH_SIZE * (self.load_s + self.augment_s)

    @property
    def what(self) -> str:
        return f"a worker's batch takes {self.worker_batch_s:.3g} s"

    def build(self, **changes: Any) -> dict[str, Any]:
        """Return the fields of the pipeline.

        Args:
            **changes: Fields to replace.
        """
        fields = {
            "dataset": Pictures(wait(self.load_s), wait(self.augment_s)),
            "train_step": Step(wait(self.step_s)),
            "device": "cpu",
            "batch_size": BATCH_SIZE,
            "num_workers": self.num_workers,
            "drop_last": True,
        }
        return {**fields, **changes}


class Pictures(Dataset[Any]):
    """Pictures of 112 by 112, uint8, loaded and then augmented.

    Args:
        load: What loading one takes.
        augment: What its augmentation takes.
    """

    def __init__(self, load: Work, augment: Work) -> None:
        self.loader, self.transform = Read(load), Mirror(augment)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.loader(index)), index % CLASSES


class Read:
    """The loader of pictures."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, index: int) -> torch.Tensor:
        mark = self.work.begin()
        picture = torch.full((3, SIDE, SIDE), index % 256, dtype=torch.uint8)
        self.work.complete(mark)
        return picture


class Mirror:
    """The augmentation of a picture."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, picture: torch.Tensor) -> torch.Tensor:
        mark = self.work.begin()
        mirrored = picture.flip(-1) if torch.rand(()) < 0.5 else picture
        self.work.complete(mark)
        return mirrored


def _job(workers: int, load_ms: float, augment_ms: float, step_ms: float) -> SlowBatches:
    return SlowBatches(workers, load_ms / 1e3, augment_ms / 1e3, step_ms / 1e3)


JOBS: tuple[SlowBatches, ...] = (
    _job(3, 3, 5, 138),
    _job(8, 3, 5, 138),
    _job(3, 2.0, 2.2, 138),
    _job(16, 2.5, 2, 138),
    _job(16, 6, 4, 150),
    _job(6, 5, 2, 100),
    _job(4, 2, 6, 200),
    _job(12, 4, 4, 180),
    _job(10, 2, 2, 110),
    _job(5, 6, 6, 120),
)


def find_job(name: str) -> SlowBatches:
    """Return the job of that name."""
    return find_by_name(JOBS, name)
