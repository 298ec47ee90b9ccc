"""Jobs of varying shapes: lengths by the batch's number, and a step that goes with them."""

import statistics

import pytest
import torch
from torch.utils.data import default_collate

from benchmarks.shapes import (
    BATCHES_A_SCALE,
    LONG_BATCHES,
    LONGEST,
    SHAPES,
    USUAL_LENGTH,
    longest_first,
    scaled,
)
from benchmarks.uneven import BATCH_SIZE
from benchmarks.work import Work

EVERY = pytest.mark.parametrize("job", SHAPES, ids=lambda job: job.name)


@pytest.fixture
def done(monkeypatch):
    seconds: list[float] = []
    monkeypatch.setattr(Work, "complete", lambda self, mark, times=1.0: seconds.append(self.seconds * times))
    return seconds


def batch_of(job, number):
    dataset = job.build()["dataset"]
    return default_collate([dataset[number * BATCH_SIZE + sample] for sample in range(BATCH_SIZE)])


@EVERY
def test_all_of_a_batch_are_as_long_as_its_number_says(job, done):
    for number in (0, LONG_BATCHES, 1000):
        assert batch_of(job, number)[0].shape == (BATCH_SIZE, job.lengths(number))


@EVERY
def test_the_step_goes_with_the_length(job, done):
    step = job.build()["train_step"]
    step([torch.zeros(BATCH_SIZE, LONGEST), torch.zeros(BATCH_SIZE)])
    assert done == [pytest.approx(job.step_s * LONGEST / USUAL_LENGTH)]


@EVERY
def test_loading_goes_with_the_length_where_it_says_so(job, done):
    batch_of(job, 0)
    first = job.lengths(0) / USUAL_LENGTH if job.loads_by_length else 1.0
    assert sum(done) == pytest.approx(job.worker_batch_s * first)


def test_the_longest_come_first_and_are_far_from_usual():
    assert [longest_first(number) for number in range(LONG_BATCHES)] == [LONGEST] * LONG_BATCHES
    rest = [longest_first(number) for number in range(LONG_BATCHES, 5000)]
    assert max(rest) < LONGEST / 2
    assert statistics.fmean(rest) == pytest.approx(USUAL_LENGTH, rel=0.05)


def test_a_scale_lasts_for_ten_batches():
    groups = [{scaled(group * BATCHES_A_SCALE + number) for number in range(BATCHES_A_SCALE)} for group in range(40)]
    assert {len(group) for group in groups} == {1}
    assert len(set.union(*groups)) > 3
