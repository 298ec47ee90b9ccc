"""The trial of workers for a job that has none: what it notes, what it leaves alone, and that it ends."""

import statistics
import time

import psutil
import pytest
import torch
from torch.utils.data import DataLoader

from bottleneck.loader.switched_loader import SwitchedLoader
from bottleneck.measure.batch_cache import BatchCache, CachedBatch
from bottleneck.measure.bench import Bench
from bottleneck.measure.trial import emulated_workers, worker_trial
from bottleneck.measure.trial.emulated_workers import Work
from bottleneck.measure.trial.worker_trial import try_workers
from bottleneck.results.evidence import Evidence
from tests.support.as_json import said

BATCH = [torch.zeros(4, 8), torch.arange(4)]


class Items(torch.utils.data.Dataset):
    def __init__(self, cost_s=0.0):
        self.cost_s = cost_s

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        if self.cost_s:
            time.sleep(self.cost_s)
        return torch.zeros(8), index


@pytest.fixture
def trial():
    """Runs a trial of a job; closes its loader."""
    made = []

    def run(dataset, *, step=lambda batch: None, batches=None, limit_s=10.0, num_workers=0, on_cpu=True):
        loader = DataLoader(dataset, batch_size=4, num_workers=num_workers)
        running = SwitchedLoader(loader, (), 0, 60.0)
        made.append(running)
        kept = [CachedBatch(batch, 4) for batch in (batches or [BATCH])]
        cache = BatchCache(kept)
        bench = Bench(running, cache, cache, lambda batch: batch, step, lambda: None, time.perf_counter)
        found = try_workers(loader, bench, kept, pinned=False, on_cpu=on_cpu, limit_s=limit_s)
        return said(Evidence(handoff=found.handoff, workers_tried=found.workers_tried))

    yield run
    for running in made:
        running.close()


def gains(found):
    return {
        (way["num_workers"], way["torch_threads"]): [alone_s / fed_s for alone_s, fed_s in way["pairs"]]
        for way in found["workers_tried"]["ways"]
    }


@pytest.mark.integration
def test_a_batch_that_costs_nothing_to_make_costs_far_more_to_hand_over(trial):
    found = trial(Items())

    assert found["handoff"]["s_per_batch"] > found["workers_tried"]["loading_s_per_batch"]
    assert found["handoff"]["main_cpu_s_per_batch"] > 0
    assert all(max(pairs) < 1 for pairs in gains(found).values())


@pytest.mark.integration
def test_loading_that_waits_is_hidden_by_workers(trial):
    found = trial(Items(cost_s=0.005), step=lambda batch: time.sleep(0.02), on_cpu=False)

    assert found["workers_tried"]["loading_s_per_batch"] >= 0.02
    assert found["workers_tried"]["loading_cpu_s_per_batch"] < 0.015
    (one, *_) = gains(found).values()
    assert statistics.median(one) > 1.3  # one pair may be disturbed


@pytest.mark.integration
def test_threads_and_processes_are_left_as_they_were(trial, monkeypatch):
    monkeypatch.setattr(worker_trial, "_MOST_PAIRS", 1)
    threads, children = torch.get_num_threads(), set(psutil.Process().children())

    found = trial(Items(cost_s=0.001), step=lambda batch: time.sleep(0.001))

    assert found["workers_tried"]["ways"]
    assert torch.get_num_threads() == threads
    assert set(psutil.Process().children()) <= children


@pytest.mark.integration
def test_fewer_threads_of_the_step_are_tried_where_it_and_the_workers_share_the_cores(trial, monkeypatch):
    monkeypatch.setattr(worker_trial, "usable_cores", lambda: 2.0)
    monkeypatch.setattr(worker_trial, "_MOST_PAIRS", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = []
        found = trial(Items(cost_s=0.001), step=lambda batch: seen.append(torch.get_num_threads()))
        elsewhere = trial(Items(cost_s=0.001), on_cpu=False)
    finally:
        torch.set_num_threads(before)

    assert {(1, 1), (0, 1)} <= set(gains(found))  # what fewer threads bring alone is not the workers'
    assert {1, 2} <= set(seen)
    assert all(threads == 2 for _, threads in gains(elsewhere))


@pytest.mark.integration
def test_a_batch_that_cannot_be_handed_over_costs_the_trial_and_nothing_else(trial, monkeypatch):
    monkeypatch.setattr(emulated_workers, "_HANG_S", 1.0)
    assert "workers_tried" not in trial(Items(cost_s=0.001), batches=[[lambda: None]])


def test_a_job_with_workers_is_not_tried(trial):
    assert trial(Items(), num_workers=1) == {}


def test_a_step_that_fails_is_left_for_the_rounds_to_tell(trial):
    def fail(batch):
        raise ValueError("no such step")

    assert "workers_tried" not in trial(Items(), step=fail)


def test_where_there_is_hardly_time_nothing_is_tried(trial):
    assert trial(Items(cost_s=0.001), limit_s=0.5) == {}


@pytest.mark.integration
def test_a_slow_step_is_run_once_and_nothing_is_tried(trial):
    steps = []
    found = trial(Items(), step=lambda batch: steps.append(time.sleep(0.5)), limit_s=2.0)

    assert "workers_tried" not in found
    assert len(steps) == 1


def test_work_computes_and_then_waits(monkeypatch):
    now_s, waited = [0.0], []

    def thread_time():
        now_s[0] += 0.001
        return now_s[0]

    monkeypatch.setattr(emulated_workers.time, "thread_time", thread_time)
    monkeypatch.setattr(emulated_workers.time, "sleep", waited.append)

    Work(wall_s=0.03, cpu_s=0.01).do()

    assert now_s[0] == pytest.approx(0.012, abs=0.0015)
    assert waited == [pytest.approx(0.02)]
