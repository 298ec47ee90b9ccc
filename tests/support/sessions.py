"""Small jobs and their diagnoses, with workers or in invented time."""

import psutil
import torch
from torch.utils.data import Dataset, IterableDataset

from bottleneck.job.description import Pipeline
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.session import measure
from bottleneck.results.records import Judgement

QUICK = MeasureOptions(budget_s=4.0)
PRECISE = Judgement("device_bound", None, precise=True)
NAMED = Judgement("input_bound", None, precise=False)
UNDECIDED = Judgement("undecided", None, precise=False)


_HELPERS = set()
"""Python's own helper processes of earlier tests, which stay by design."""


def known_helpers():
    _HELPERS.clear()
    _HELPERS.update(psutil.Process().children())


def workers_left():
    return set(psutil.Process().children()) - _HELPERS


class Photos(Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return self.augment(self.load(index)), index

    def load(self, index):
        return torch.full((8,), float(index))

    def augment(self, image):
        return image + 0.5


class Numbers(IterableDataset):
    def __init__(self, start=0):
        self.start = start

    def __iter__(self):
        return iter(torch.arange(self.start, 50.0))


def pipeline_of(dataset=None, **options):
    given = {"dataset": dataset or Photos(), "train_step": lambda batch: None, "batch_size": 4, "num_workers": 1}
    return Pipeline(**{**given, "device": "cpu", **options})


def run(pipeline, options=QUICK, judge=lambda _: PRECISE, on_progress=lambda _: None, **more):
    return measure(pipeline, options, judge=judge, on_progress=on_progress, **more)


def blocks(outcome):
    return {e.name: e.coupled for e in outcome.measurement.experiments}


class Clock:
    """Invented time: each look at it takes some milliseconds, and the step what it says."""

    def __init__(self):
        self.now_s = 50.0

    def __call__(self):
        self.now_s += 5e-3
        return self.now_s

    def step(self, seconds):
        def work(batch):
            self.now_s += seconds

        return work


def run_simulated(step_s, options, judge=lambda _: UNDECIDED, dataset=None, **more):
    """A diagnosis without workers, in invented time."""
    clock = Clock()
    pipeline = pipeline_of(dataset, train_step=clock.step(step_s), num_workers=0)
    return run(pipeline, options, judge, clock=clock, **more)
