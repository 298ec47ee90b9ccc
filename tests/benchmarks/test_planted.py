"""The planted pipelines are what they say they are; nothing is measured here."""

import pickle

import pytest
import torch

from benchmarks.datasets import CostlyToUnpickle
from benchmarks.plain import plain_loader
from benchmarks.planted import COMPOSED_TRANSFORMS, PLANTED, SLOW_STEPS, find_planted
from benchmarks.work import Work, wait

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
