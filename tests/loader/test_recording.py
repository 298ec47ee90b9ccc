"""Checks of recordings, and the effects of collation on them."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import default_collate

from bottleneck.loader import engine as engine_module
from bottleneck.loader import modes, trees
from bottleneck.loader.recording.copies import CopyOnPickle, storages
from bottleneck.loader.recording.replay import BRIEF_FETCHES, THOROUGH_FETCHES
from bottleneck.measure.prepare import warnings_of_plan
from tests.loader.engine_bench import (
    RUN_AUGMENT,
    RUN_COLLATE,
    RUN_FINISH,
    RUN_LOAD,
    NothingBehind,
    OnlyLoaderCut,
    Photos,
    engines,
    work,
)

make = pytest.fixture(engines)
ITEM_S = 3e-3
"""Two calls of a thousandth of a second each and the augmentation, by the engines' invented clock."""
THOROUGH_S, BRIEF_S = 1.01 * THOROUGH_FETCHES * ITEM_S, 1.01 * BRIEF_FETCHES * ITEM_S


class Deep(OnlyLoaderCut):
    """Three stages; one of them is cut."""

    def load_image(self, index):
        work(self, "open")
        return super().load_image(index)


def fetches(make, checking_s, kind=Deep):
    """Return how often items were loaded to record two of them, beyond once each and one look; and the plan."""
    bench = make(kind(), batches=1, checking_s=checking_s)
    return bench.log.count(RUN_LOAD) - 3, bench.plan


def test_the_slower_the_samples_the_less_is_checked(make):
    # Guards: an item is fetched 6 to 17 times, which with items of 30 s eats the budget in every worker at once.
    thorough, plan = fetches(make, math.inf)
    assert 2 * BRIEF_FETCHES < thorough < THOROUGH_FETCHES
    assert plan.strategy == "replay"
    assert fetches(make, THOROUGH_S)[0] == thorough
    brief, plan = fetches(make, BRIEF_S)
    assert 0 < brief <= BRIEF_FETCHES
    assert plan.strategy == "replay"
    none, plan = fetches(make, 0.9 * BRIEF_S)
    assert none == 0
    assert plan.strategy == "fetch"
    assert "too long to check" in plan.reason


def test_an_augmentation_is_still_tried_by_itself(make):
    found, plan = fetches(make, 0.0, NothingBehind)
    assert found == 0
    assert plan.strategy == "template"
    assert [warning.id for warning in warnings_of_plan(plan)] == ["checked-less"]

    class Moody(NothingBehind):
        seen = 0

        def augment(self, image):
            self.seen += 1
            return image + 0.5 if self.seen <= 2 else [image]

    assert make(Moody(), batches=1, checking_s=0.0, collate_fn=list).plan.strategy == "fetch"


def test_a_collate_function_that_changes_samples_gets_copies(make):
    def changing(samples):
        for image, _ in samples:
            image.add_(100)  # decays from batch to batch, unless it is copied
        return default_collate(samples)

    bench = make(Photos(), collate_fn=changing, batches=1)
    assert bench.plan.copy_samples
    first, second = bench.run("before_collate")[0], bench.run("before_collate")[0]
    assert trees.equal(first, second)
    assert not make(Photos()).plan.copy_samples


def keeping(samples):
    images, labels = zip(*samples, strict=True)
    return {"first": images[0], "views": [image[:1] for image in images], "labels": labels}


@pytest.mark.parametrize("mode", ["before_collate", "before_augment", modes.ALL & ~modes.LOAD])
def test_of_samples_that_are_kept_in_the_batch_it_gets_copies_and_the_collation_none(make, mode):
    # Guards: copies for the collation were charged to whatever was served: of 24 ms nothing was found.
    bench = make(NothingBehind(), collate_fn=keeping, batches=1)
    assert not bench.plan.copy_samples
    assert bench.plan.keeps_samples
    served = [bench.run(mode, first=0)[0] for _ in range(3)]
    assert all(trees.equal(served[0], batch) for batch in served)
    assert len(storages([batch["first"] for batch in served])) == 3
    bench.control.publish_plan(replace(bench.plan, copy_batches=False))
    kept = [bench.run("before_collate")[0] for _ in range(3)]
    assert len(storages([batch["first"] for batch in kept])) == 1


def test_in_a_worker_samples_that_are_kept_in_the_batch_are_copied_by_the_queue(make, monkeypatch):
    monkeypatch.setattr(engine_module, "get_worker_info", lambda: SimpleNamespace(id=0))
    batch, _ = make(Photos(), collate_fn=keeping, batches=1).run("before_collate")
    assert {type(part) for part in (batch["first"], *batch["views"])} == {CopyOnPickle}
    recorded, _ = make(Photos(), collate_fn=keeping, batches=1).run(modes.ALL)
    for part, original in zip((batch["first"], *batch["views"]), (recorded["first"], *recorded["views"]), strict=True):
        rebuild, given = part.__reduce__()
        assert rebuild(*given).shape == original.shape


class Raising(Photos):
    """A file that cannot be read is replaced by the next one."""

    broken = (51,)

    def __getitem__(self, index):
        try:
            return super().__getitem__(index)
        except OSError:
            return self[index + 1]

    def load_image(self, index):
        if index in self.broken:
            raise OSError("truncated")
        return super().load_image(index)


class Mosaic(NothingBehind):
    """Four images in one."""

    def __getitem__(self, index):
        parts = [self.load_image(torch.randint(100, ()).item()) for _ in range(3)]
        return self.augment(torch.cat([self.load_image(index), *parts])), index


def ran(bench, experiment):
    """Return how often each stage ran for a batch of two."""
    bench.run(experiment)
    return {stage: bench.log.count(stage) for stage in set(bench.log) - {RUN_COLLATE}}


@pytest.mark.parametrize(("kind", "left"), [(Raising, {RUN_LOAD: 2, RUN_FINISH: 2}), (Mosaic, {RUN_LOAD: 8})])
def test_a_retry_after_an_error_and_all_parts_of_a_mosaic_are_loading(make, kind, left):
    bench = make(kind(), batches=3)
    assert bench.plan.strategy == "template"
    assert ran(bench, "before_augment") == {RUN_AUGMENT: 2}
    assert ran(bench, modes.ALL & ~modes.AUGMENT) == left
