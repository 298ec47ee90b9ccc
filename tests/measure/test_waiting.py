"""A stall that was planted is found with its period, and the edge of an epoch is told for both kinds of workers."""

import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from bottleneck.measure.arms import Arm
from bottleneck.measure.batches import BatchCache
from bottleneck.measure.blocks import Bench
from bottleneck.measure.epochs import describe_epoch_gap
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.session import measure
from bottleneck.measure.waits import find_stalls
from bottleneck.pipeline.description import Pipeline
from bottleneck.results.records import Judgement
from bottleneck.staging import stages
from bottleneck.staging.loader import SwitchedLoader

EVERY = 5
"""Batches from one stall to the next."""
RAW = Arm(stages.ALL, "loader")


class Clock:
    """Invented time: each look at it takes half a millisecond."""

    def __init__(self):
        self.now_s = 50.0

    def __call__(self):
        self.now_s += 5e-4
        return self.now_s

    def spend(self, seconds):
        self.now_s += seconds


class Stalling(Dataset):
    """Its every so-many-th batch of two takes long."""

    def __init__(self, spend):
        self.spend = spend

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        self.spend(0.080 if index % (2 * EVERY) == 0 else 0.001)
        return torch.zeros(4)


def test_a_planted_stall_is_found_with_its_period_and_what_it_costs():
    clock = Clock()
    pipeline = Pipeline(
        dataset=Stalling(clock.spend), train_step=lambda batch: clock.spend(0.010), batch_size=2, device="cpu"
    )
    undecided = Judgement("undecided", None, precise=False)
    options = MeasureOptions(budget_s=50.0)
    outcome = measure(pipeline, options, judge=lambda _: undecided, on_progress=lambda _: None, clock=clock)
    assert outcome.failure is None
    evidence = outcome.measurement.evidence
    stalls, batches = evidence["stalls"], evidence["wait_s"]["count"]
    assert stalls["period_batches"] == EVERY
    assert stalls["threshold_s"] < 0.080
    assert stalls["count"] == pytest.approx(batches / EVERY, abs=0.05 * batches)
    assert stalls["lost_share"] == pytest.approx(0.079 / (0.079 + EVERY * 0.0125), abs=0.07)


@pytest.mark.integration
def test_a_run_without_a_break_shows_a_period_of_real_workers():
    loader = SwitchedLoader(DataLoader(Stalling(time.sleep), batch_size=2, num_workers=1), (), 0, 60.0)
    try:
        bench = Bench(
            loader=loader, host=BatchCache([]), device=BatchCache([]), transfer=lambda batch: batch,
            step=lambda batch: None, synchronize=lambda: None, clock=time.perf_counter,
        )  # fmt: skip
        bench.prepare(RAW)
        waits, seconds = bench.watch(RAW, 1.5)
    finally:
        loader.close()
    assert seconds >= 1.5
    assert len(waits) == bench.batches
    stalls = find_stalls([waits], seconds, workers=1)
    assert stalls["period_batches"] == EVERY


class FakeLoader:
    """Takes so long for the first batch after a rest."""

    num_workers, iterable = 2, False

    def __init__(self, seconds):
        self.seconds = list(seconds)
        self.now = 0.0
        self.resting = False

    def rest(self):
        self.resting = True

    def switch(self, mode):
        assert self.resting
        self.resting = False

    def next_batch(self):
        self.now += self.seconds.pop(0)
        return None, 1


def gap_of(loader, persistent):
    return describe_epoch_gap(loader, lambda: loader.now, persistent_workers=persistent, first_batch_s=3.0)


def test_workers_that_start_anew_take_what_they_took_at_first():
    loader = FakeLoader([])
    assert gap_of(loader, False) == {"seconds": 3.0, "persistent_workers": False, "started_anew": True}


def test_workers_that_stay_take_a_batch_of_an_empty_queue():
    loader = FakeLoader([0.2, 0.5, 0.3])
    assert gap_of(loader, True)["seconds"] == pytest.approx(0.3)
    assert loader.resting
    assert gap_of(FakeLoader([4.0]), True)["seconds"] == pytest.approx(4.0)  # not tried again


def test_without_workers_and_for_streams_that_stay_nothing_is_said():
    loader = FakeLoader([])
    loader.num_workers = 0
    assert gap_of(loader, False) is None
    loader.num_workers, loader.iterable = 2, True
    assert gap_of(loader, True) is None
    assert gap_of(loader, False)["started_anew"]
