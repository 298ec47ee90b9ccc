"""An experiment that cannot be served is lost, but neither the run nor another number."""

import time

import numpy as np
import pytest
import torch

import bottleneck
from bottleneck.loader import modes
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.rounds.lost_arms import without_mode
from tests.measure.ladders import make_ladder
from tests.support.datasets import Photos
from tests.support.sessions import pipeline_of, run

BUDGETS_S = (5.0, 12.0, 30.0)


def ladder_of(*within):
    return make_ladder(within_sample=within)


def test_an_experiment_without_a_stage_is_lost_alone():
    ladder = ladder_of("augment", "load")
    left = without_mode(ladder, modes.ALL & ~modes.AUGMENT, "it raised")
    assert left.rungs == ladder.rungs
    assert left.spans == ladder.spans
    assert dict(ladder.without).keys() - dict(left.without).keys() == {"augment"}


def test_stages_around_a_lost_experiment_are_told_as_one():
    ladder = ladder_of("augment", "load")
    left = without_mode(ladder, modes.MODE_OF_EXPERIMENT["before_augment"], "it raised")
    assert [span.name for span in left.spans] == ["compute", "handoff", "collate", "fetch"]
    (fetch,) = [span for span in left.spans if span.name == "fetch"]
    assert (fetch.inner, fetch.outer) == ("before_collate", "raw")
    rungs = {rung.name: rung for rung in left.rungs}
    assert rungs["before_augment"].reason == "it raised"
    assert dict(left.without)["fetch"] == rungs["before_collate"].coupled
    lost = [arm for arm in ladder.arms() if arm not in left.arms()]
    assert {arm.coupled for arm in lost} == {True, False}


def test_a_stage_that_cannot_be_split_carries_both_names():
    left = without_mode(ladder_of("augment", "load"), modes.MODE_OF_EXPERIMENT["before_collate"], "why")
    assert [span.name for span in left.spans][2:] == ["collate+augment", "load"]


def measured(dataset, *names, **options):
    """The measurement of a job; at length, should others have kept the machine busy in so short a time."""
    for budget_s in BUDGETS_S:
        job = pipeline_of(dataset, batch_size=2, **options)
        outcome = run(job, MeasureOptions(budget_s=budget_s), min_rounds=4)  # lost arms are measured anew later
        assert outcome.failure is None
        measurement = outcome.measurement
        blocks = {e.name: e.coupled for e in measurement.experiments}
        blocks |= {f"without {found.stage}": found.coupled for found in measurement.without}
        if all(blocks.get(name) for name in names):
            break
    else:
        pytest.fail(f"not measured: {[name for name in names if not blocks.get(name)]}")
    return measurement


WORK_S = 0.001


class Mixing(Photos):
    """Combines the augmentation's output with loaded data: both have the length of the item."""

    def __getitem__(self, index):
        image = self.load(index)
        mask = torch.ones(len(image))
        augmented = self.augment(image)
        time.sleep(WORK_S)
        return (augmented * mask).sum(), index

    def load(self, index):
        return torch.full((8 + index % 7,), float(index))

    def augment(self, image):
        time.sleep(WORK_S)
        return super().augment(image)


class MarkedMixing(Mixing):
    """The same with a marked stage."""

    def augment(self, image):
        return self.flip(image)

    @bottleneck.stage("flip")
    def flip(self, image):
        time.sleep(WORK_S)
        return image + 0.5


class Erasing(Photos):
    """Erases in place, once in a while: in a tensor, or with a key that is gone then."""

    def __init__(self, kind, one_in=10):
        self.kind, self.one_in, self.calls = kind, one_in, 0

    def load(self, index):
        if self.kind == "key":
            return {"image": torch.ones(8), "boxes": torch.ones(2)}
        return torch.ones(8) if self.kind == "tensor" else np.ones(8)

    def augment(self, sample):
        time.sleep(WORK_S)
        self.calls += 1
        erases = self.calls > CHECKED_CALLS and self.calls % self.one_in == 0
        if self.kind == "key":
            return sample["image"] + (sample.pop("boxes") if erases else sample["boxes"]).sum()
        if erases:
            sample[:4] = 0
        return sample + 1


CHECKED_CALLS = 150
"""Calls of the augmentation in which a job is checked and recorded."""


@pytest.mark.integration
@pytest.mark.parametrize("workers", [0, 1])
def test_code_that_mixes_loaded_and_recorded_data_loses_one_experiment(workers):
    # Guards: a fault of bottleneck in one arm ends the whole diagnosis, and is reported as the job's.
    measurement = measured(Mixing(), "device", "raw", "without load", num_workers=workers)
    without = {found.stage: found.coupled for found in measurement.without}
    assert "augment" not in without
    assert "load" in without
    found = {e.name: e for e in measurement.experiments}
    assert all(found[name].available for name in ("before_collate", "before_augment"))
    (told,) = [w.message for w in measurement.warnings if w.id == "experiment-lost"]
    assert told.startswith("`without augment` could not be measured: the job's code raised RuntimeError: The size")


@pytest.mark.integration
def test_a_marked_stage_that_fits_to_its_own_item_only_is_served_to_it():
    # Guards: each item is made a second time inside a timed block, uncounted.
    measurement = measured(MarkedMixing(), "raw", "without flip")
    without = {found.stage: found.coupled.blocks for found in measurement.without if found.coupled}
    (told,) = [w.message for w in measurement.warnings if w.id == "items-served-again"]
    assert "page cache" in told
    raw = next(e.coupled.blocks for e in measurement.experiments if e.name == "raw")
    seconds = {name: min(b.seconds / b.batches for b in blocks) for name, blocks in (("raw", raw), *without.items())}
    assert seconds["flip"] < 0.75 * seconds["raw"]  # half of it; with a second run, as long


@pytest.mark.integration
@pytest.mark.parametrize(("kind", "lost"), [("tensor", False), ("array", False), ("key", True)])
def test_an_augmentation_that_works_in_place_now_and_then_is_told(kind, lost):
    # Guards: a recorded argument decays over thousands of servings, and a check of two items misses it.
    measurement = measured(Erasing(kind), "device", "raw", *(() if lost else ("before_augment",)))
    (told,) = [w.message for w in measurement.warnings if w.id == "recording-changed"]
    assert told.startswith("Recorded arguments of `augment` changed in place")
    # Without the key, the augmentation raises on the served input.
    assert bool([w for w in measurement.warnings if w.id == "experiment-lost"]) is lost
