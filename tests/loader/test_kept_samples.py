"""Collate functions that change the samples which they are given, or put them into the batch."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from torch.utils.data import default_collate

from bottleneck.loader import engine as engine_module
from bottleneck.loader import modes, trees
from bottleneck.loader.store import CopyOnPickle, storages
from tests.loader.engine_bench import EVERYTHING, NothingBehind, Photos, engines

make = pytest.fixture(engines)


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


@pytest.mark.parametrize(("changes", "copied"), [(True, 2), (False, 0)])
def test_the_price_of_serving_has_the_copies_that_serving_makes(make, monkeypatch, changes, copied):
    # Guards: no experiment showed what copies for a collation that changes samples take, and no interval held it.
    def changing(samples):
        for image, _ in samples:
            image.add_(1)
        return default_collate(samples)

    bench = make(Photos(), collate_fn=changing if changes else None)
    bench.run(modes.ALL)
    calls, copy = [], trees.copy_deep
    monkeypatch.setattr(trees, "copy_deep", lambda value: calls.append(value) or copy(value))
    _, ran = bench.run(modes.ALL | modes.PAY_SERVING)
    assert len(calls) == copied
    assert ran == EVERYTHING


def keeping(samples):
    images, labels = zip(*samples, strict=True)
    return {"first": images[0], "views": [image[:1] for image in images], "labels": labels}


def test_samples_that_are_the_batch_are_copied_as_well(make):
    bench = make(Photos(), collate_fn=lambda samples: samples, batches=1)
    assert bench.plan.keeps_samples
    first, second = bench.run("before_collate")[0], bench.run("before_collate")[0]
    assert trees.equal(first, second)
    assert not storages(first) & storages(second)


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
