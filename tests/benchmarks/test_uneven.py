"""Uneven loaders are the same in every run, and as uneven as they say."""

import statistics

import pytest

from benchmarks.regimes import REGIMES
from benchmarks.uneven import BATCH_SIZE, UnevenLoader, factor
from benchmarks.work import Work

JOB = UnevenLoader(num_workers=8, worker_batch_s=0.2, cv=0.3, step_s=0.02)


@pytest.mark.parametrize("cv", [0.1, 0.3, 0.6])
def test_factors_have_a_mean_of_one_and_the_spread_that_was_asked_for(cv):
    drawn = [factor(index, cv) for index in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(1, abs=0.02)
    assert statistics.stdev(drawn) == pytest.approx(cv, rel=0.05)
    assert statistics.correlation(drawn[:-1], drawn[1:]) == pytest.approx(0, abs=0.05)


def test_a_batch_takes_what_was_planned_on_average_and_is_as_uneven(monkeypatch):
    took = []
    monkeypatch.setattr(Work, "complete", lambda self, mark, times=1.0: took.append(self.seconds * times))
    dataset = JOB.build()["dataset"]
    for index in range(400 * BATCH_SIZE):
        dataset.loader(f"image-{index}")
    batches = [sum(took[first : first + BATCH_SIZE]) for first in range(0, len(took), BATCH_SIZE)]
    assert statistics.fmean(batches) == pytest.approx(0.2, rel=0.05)
    assert statistics.stdev(batches) / statistics.fmean(batches) == pytest.approx(0.3, rel=0.15)


def test_the_grid_of_the_design_is_covered():
    loaders = [regime.loader for regime in REGIMES]
    assert len(loaders) >= 20
    assert {(loader.num_workers, loader.cv) for loader in loaders} >= {
        (workers, cv) for workers in (2, 4, 8, 12) for cv in (0, 0.05, 0.1, 0.15, 0.3)
    }
    assert min(loader.worker_batch_s for loader in loaders) == 0.02
    assert max(loader.worker_batch_s for loader in loaders) >= 2
    for loss in (0, 0.03, 0.07, 0.12, 0.2):
        assert sum(abs(regime.loss - loss) < 0.01 for regime in REGIMES) >= 2


@pytest.mark.parametrize("regime", REGIMES, ids=lambda regime: regime.name)
def test_the_loss_is_no_smaller_than_the_workers_allow_for(regime):
    loader = regime.loader
    least = max(0, 1 - loader.step_s / (loader.worker_batch_s / loader.num_workers))
    assert least - 0.02 <= regime.loss <= least + 0.08
