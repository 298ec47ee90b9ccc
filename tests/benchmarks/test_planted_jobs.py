"""The planted jobs are what they say they are; nothing is measured here."""

import pickle
import statistics

import pytest
import torch
from torch.utils.data import default_collate

from benchmarks.datasets import CostlyToUnpickle
from benchmarks.plain import plain_loader
from benchmarks.planted import COMPOSED_TRANSFORMS, PLANTED, SLOW_STEPS, find_planted
from benchmarks.regimes import REGIMES
from benchmarks.shapes import (
    BATCHES_A_SCALE,
    LONG_BATCHES,
    LONGEST,
    SHAPES,
    USUAL_LENGTH,
    longest_first,
    scaled,
)
from benchmarks.uneven import BATCH_SIZE, UnevenLoader, factor
from benchmarks.work import Work, wait

# --- planted stages -----------------------------------------------------------------------------------------


EVERY = pytest.mark.parametrize("planted", PLANTED + SLOW_STEPS, ids=lambda planted: planted.name)
MUST_BE_PLANTED = {
    "device_bound",
    "load_wait",
    "load_spin",
    "augment_spin",
    "collate_spin",
    "handoff_objects",
    "copy_slow",
    "last_straw",
    "no_workers",
    "balanced",
}


@pytest.fixture
def done(monkeypatch):
    """Instead of being done, work is written down."""
    seconds: list[float] = []
    monkeypatch.setattr(Work, "complete", lambda self, mark, times=1.0: seconds.append(self.seconds * times))
    return seconds


def test_everything_the_issue_lists_is_planted():
    assert {planted.name for planted in PLANTED} >= MUST_BE_PLANTED


@EVERY
def test_spawned_workers_can_unpickle_it(planted):
    fields = planted.build(length=100)
    copies = pickle.loads(pickle.dumps((fields["dataset"], fields.get("collate_fn"))))
    assert type(copies[0]) is type(fields["dataset"])
    assert copies[0].length == 100


@EVERY
def test_one_batch_costs_what_was_planted(planted, done):
    fields = planted.build(length=1000, num_workers=0)
    batch = next(iter(plain_loader(fields)))
    if "to_device" in fields:
        batch = fields["to_device"](batch, torch.device("cpu"))
    pickle.loads(pickle.dumps(batch))  # what the hand-off from a worker does
    workers = max(planted.num_workers, 1)
    expected = sum(
        stage.cost_s_per_batch * (1 if stage.name in ("copy", "handoff") else workers)
        for stage in planted.stages
        if stage.name not in COMPOSED_TRANSFORMS  # parts of the augmentation
    )
    assert sum(done) == pytest.approx(expected)


@EVERY
def test_the_step_takes_what_was_planted(planted, done):
    planted.build(length=100)["train_step"]([torch.zeros(1)])
    assert done == [planted.step_s]


@pytest.mark.parametrize(
    "planted",
    # What pickling real objects costs is not planted.
    [planted for planted in PLANTED + SLOW_STEPS if planted.layout != "annotated"],
    ids=lambda planted: planted.name,
)
def test_the_expected_verdict_follows_from_the_planted_costs(planted):
    costs = planted.costs_s_per_batch
    main = planted.step_s + costs.get("copy", 0) + costs.get("handoff", 0)
    loader = sum(cost for name, cost in costs.items() if name not in ("compute", "copy", "handoff"))
    per_batch = main + loader if planted.num_workers == 0 else max(main, loader)
    loss = 1 - planted.step_s / per_batch
    assert planted.state == ("input_bound" if loss > 0.2 else "device_bound")
    if planted.state == "input_bound":
        assert planted.bottleneck == max((n for n in costs if n != "compute"), key=costs.__getitem__)


def test_the_length_of_the_dataset_costs_nothing():
    short, long = (find_planted("augment_wait").build(length=length)["dataset"] for length in (10**3, 10**8))
    assert len(long) == 10**8
    assert abs(len(pickle.dumps(long)) - len(pickle.dumps(short))) < 16


def test_only_the_hand_off_pays_for_the_costly_object(done):
    import copy

    thing = CostlyToUnpickle(wait(0.010), ["a", "b"])
    assert copy.deepcopy(thing).content == ["a", "b"]
    assert done == []
    assert pickle.loads(pickle.dumps(thing)).content == ["a", "b"]
    assert done == [0.010]


# --- shapes that vary ---------------------------------------------------------------------------------------


EVERY_SHAPE = pytest.mark.parametrize("job", SHAPES, ids=lambda job: job.name)


def batch_of(job, number):
    dataset = job.build()["dataset"]
    return default_collate([dataset[number * BATCH_SIZE + sample] for sample in range(BATCH_SIZE)])


@EVERY_SHAPE
def test_all_of_a_batch_are_as_long_as_its_number_says(job, done):
    for number in (0, LONG_BATCHES, 1000):
        assert batch_of(job, number)[0].shape == (BATCH_SIZE, job.lengths(number))


@EVERY_SHAPE
def test_the_step_goes_with_the_length(job, done):
    step = job.build()["train_step"]
    step([torch.zeros(BATCH_SIZE, LONGEST), torch.zeros(BATCH_SIZE)])
    assert done == [pytest.approx(job.step_s * LONGEST / USUAL_LENGTH)]


@EVERY_SHAPE
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


# --- uneven loaders -----------------------------------------------------------------------------------------


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
