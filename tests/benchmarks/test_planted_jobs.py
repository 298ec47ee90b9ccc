"""The planted jobs and their clocks: each stage takes what it says; little is measured here."""

import pickle
import time
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.utils.data import IterableDataset

from benchmarks import truth
from benchmarks.plain import plain_loader
from benchmarks.planted import COMPOSED_TRANSFORMS, PLANTED, SLOW_STEPS, Planted, PlantedStage, find_planted
from benchmarks.regimes import REGIMES
from benchmarks.taken_out import CannotBeTakenOut, without
from benchmarks.truth import COLLATION, SAMPLE, WRITING, clocked_fields, measure_truth, stage_seconds
from benchmarks.work import Work

# --- planted stages -----------------------------------------------------------------------------------------


EVERY = pytest.mark.parametrize("planted", PLANTED + SLOW_STEPS, ids=lambda planted: planted.name)


@pytest.fixture
def done(monkeypatch):
    """Instead of being done, work is written down."""
    seconds: list[float] = []
    monkeypatch.setattr(Work, "complete", lambda self, mark, times=1.0: seconds.append(self.seconds * times))
    return seconds


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


# --- uneven loaders -----------------------------------------------------------------------------------------


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


# --- clocks -------------------------------------------------------------------------------------------------


IN_THE_MAIN_PROCESS = {"compute", "copy", "handoff"}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_every_planted_stage_has_a_clock(planted: Planted):
    # Without work in it, so that nothing has to be waited for.
    idle = replace(planted, step_s=0.0, stages=tuple(replace(s, cost_s_per_batch=0.0) for s in planted.stages))
    fields = clocked_fields(idle)
    truth.clocks_s.clear()
    dataset = fields["dataset"]
    source = iter(dataset) if isinstance(dataset, IterableDataset) else (dataset[i] for i in range(100))
    _, clocks = fields["collate_fn"]([next(source) for _ in range(planted.batch_size)])
    found = stage_seconds(idle, clocks)
    assert set(found) == set(planted.costs_s_per_batch) - IN_THE_MAIN_PROCESS
    # What is left of an idle collation without the writing, which is timed after it, may be less than nothing.
    assert all(seconds > 0 for stage, seconds in found.items() if stage != "collate")
    assert all(seconds > 0 for seconds in clocks.values())


def test_collation_is_all_but_the_write_into_shared_memory():
    clocks = {COLLATION: 0.0040, WRITING: 0.0003, SAMPLE: 0.02, "load": 0.01, "augment": 0.01}
    assert stage_seconds(find_planted("last_straw"), clocks)["collate"] == pytest.approx(0.0037)
    assert stage_seconds(find_planted("marked_pad"), {**clocks, "pad": 0.0030})["collate"] == pytest.approx(0.0007)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_most_stages_can_be_taken_out_and_nothing_else_goes_with_them(planted, monkeypatch):
    done = []
    monkeypatch.setattr(Work, "complete", lambda self, mark, times=1.0: done.append(self))
    truth.batch_maker(planted.build())()
    whole = Counter(done)
    for stage in set(planted.costs_s_per_batch) - IN_THE_MAIN_PROCESS:
        try:
            make = truth.batch_maker(without(planted.build(), stage))
        except CannotBeTakenOut:
            assert stage in ("load", "other", "collate", "Crop", "Blur", "Jitter")
            continue
        make()
        done.clear()
        make()
        gone = {work for work in whole - Counter(done) if work.seconds}
        own = {planted.work(stage)} if planted.layout != "composed" else gone
        assert {work.seconds for work in gone} == {work.seconds for work in own} or planted.layout == "marked"


@pytest.mark.integration
def test_waiting_of_real_workers_is_found_again():
    stages = (PlantedStage("load", 0.008, "wait"), PlantedStage("augment", 0.016, "wait"))
    planted = Planted("twice", "", "augment", stages, num_workers=2, batch_size=4, step_s=0.001)
    started = time.perf_counter()
    found = measure_truth(planted, 1.0)
    assert time.perf_counter() - started > 2.0
    assert set(found) == {"load", "augment", "compute"}
    assert 0.9 * 0.008 <= found["load"] < found["augment"]
    assert found["augment"] / found["load"] == pytest.approx(2.0, rel=0.5)
