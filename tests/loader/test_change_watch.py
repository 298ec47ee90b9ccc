"""Recorded data that changes while it is served is noticed, whatever it is made of."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from bottleneck.loader import modes
from bottleneck.loader.record import served as served_module
from bottleneck.loader.record.change_watch import Change, Snapshot
from bottleneck.loader.record.plan import with_copies
from bottleneck.loader.record.served import storages
from tests.loader.engine_bench import NothingBehind, Photos, engines, work

make = pytest.fixture(engines)
BEFORE_AUGMENT = modes.MODE_OF_EXPERIMENT["before_augment"]


class Target:
    def __init__(self):
        self.boxes = torch.ones(2, 4)


def paint(image):
    image.putpixel((0, 0), 9)


CHANGES = [
    (torch.zeros(3), lambda t: t.add_(1)),
    (torch.zeros(3), lambda t: t.numpy().fill(1)),  # past the version of the tensor
    (torch.zeros(4, 4, dtype=torch.bfloat16).T, lambda t: t.fill_(1)),
    (np.zeros(3), lambda a: a.fill(1)),
    (np.zeros((4, 4))[:, ::2], lambda a: a.fill(1)),
    (bytearray(3), lambda b: b.append(1)),
    (Image.new("L", (2, 2)), paint),
    ({"boxes": [1, 2], "label": 3}, lambda d: d.pop("label")),
    ({"boxes": [1, 2]}, lambda d: d["boxes"].append(3)),
    ({"size": 1}, lambda d: d.update(size=2)),
    ({"tokens": list(range(100))}, lambda d: d["tokens"].__setitem__(7, -1)),
    (Target(), lambda t: t.boxes.mul_(2)),
    (Target(), lambda t: setattr(t, "boxes", t.boxes[:1])),
]


@pytest.mark.parametrize(("value", "change"), CHANGES, ids=lambda value: type(value).__name__)
def test_what_is_changed_in_place_is_noticed(value, change):
    snapshot = Snapshot([value, "label"])
    assert not snapshot.changed()
    change(value)
    assert snapshot.changed()


def test_an_operation_on_a_tensor_is_seen_by_its_version():
    image = torch.zeros(3)
    snapshot = Snapshot({"image": image, "array": np.zeros(3)})
    assert not snapshot.moved()
    image.add_(0)
    assert snapshot.moved()


class Erasing(NothingBehind):
    """Works in place as soon as it is told to, which is after it has been checked."""

    erases = False

    def augment(self, image):
        work(self, "augment")
        if self.erases:
            image.zero_() if torch.is_tensor(image) else image.fill(0)
        return image + 0.5


class ErasingArrays(Erasing):
    def load_image(self, index):
        return np.full(2, float(index))


WITHOUT_AUGMENT = modes.ALL & ~modes.AUGMENT


def faults(bench):
    return [fault for found in bench.control.read_new_faults().values() for fault in found]


def recorded(bench):
    return [call.args[-1].tolist() for b in bench.engine._store.batches for item in b.items for call in item.calls]


@pytest.mark.parametrize(("kind", "asks"), [(Erasing, modes.HANDOFF), (ErasingArrays, modes.HANDOFF | modes.CHECK)])
def test_an_argument_that_decays_is_copied_from_then_on(make, kind, asks):
    # Guards: a recorded argument decays over thousands of servings, and a check of two items misses it.
    bench = make(kind(), batches=3)
    bench.run("before_augment")
    bench.run("after_collate")
    assert faults(bench) == []
    bench.engine._user_code.dataset.erases = True
    bench.run(modes.ALL & ~modes.HANDOFF)  # serves nothing, and so is not to blame
    bench.run("before_augment")
    bench.run(asks)
    (change,) = faults(bench)
    assert change == Change("arguments", "augment", (BEFORE_AUGMENT,))
    assert recorded(bench) == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]  # without the ones that were served
    bench.control.publish_plan(with_copies(bench.plan, change.what, change.site))
    for _ in range(4):
        bench.run("before_augment")
    bench.run(asks)
    assert faults(bench) == []
    assert recorded(bench) == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]


class Scaling(Photos):
    """Changes what its augmentation gives, as soon as it is told to."""

    scales = False

    def __getitem__(self, index):
        image = self.augment(self.load_image(index))
        if self.finishes:
            work(self, "finish")
        return (image.mul_(2) if self.scales else image if not self.finishes else image * 2), index


@pytest.mark.parametrize(
    ("finishes", "strategy", "mode"),
    [(True, "replay", "after_augment"), (True, "replay", WITHOUT_AUGMENT), (False, "template", WITHOUT_AUGMENT)],
)
def test_an_output_that_decays_is_copied_from_then_on(make, finishes, strategy, mode):
    dataset = Scaling()
    dataset.finishes = finishes
    bench = make(dataset, batches=3)
    assert bench.plan.strategy == strategy
    bench.engine._user_code.dataset.scales = True
    bench.run(mode)
    bench.run("after_collate")
    assert {(change.what, change.site) for change in faults(bench)} == {("outputs", "augment")}
    bench.control.publish_plan(with_copies(bench.plan, "outputs", "augment"))
    bench.run(mode)
    bench.run(modes.HANDOFF | modes.CHECK)
    assert faults(bench) == []


def test_a_mode_in_which_nothing_is_served_is_not_looked_at(make):
    bench = make(Erasing(), batches=2)
    bench.engine._user_code.dataset.erases = True
    bench.run("raw")
    bench.run(modes.HANDOFF | modes.CHECK)
    assert faults(bench) == []


def test_a_batch_that_nothing_changes_is_served_itself_and_copied_once_something_does(make):
    # Guards: without workers, a copy of a batch was served in the place of its collation, and takes as long.
    bench = make(Photos(), batches=2)
    bench.control.publish_plan(replace(bench.plan, copy_batches=False))
    served = [bench.run("after_collate")[0][0] for _ in range(4)]
    assert len(storages(served)) == 2
    served[0].zero_()
    bench.run("raw")
    assert faults(bench) == [Change("batch", "", (modes.HANDOFF,))]
    bench.control.publish_plan(with_copies(bench.plan, "batch", ""))
    copied = [bench.run("after_collate")[0][0] for _ in range(4)]
    assert len(storages(copied)) == 4
    assert all(torch.equal(image, served[1]) for image in copied)
    bench.run("raw")
    assert faults(bench) == []


def test_of_a_batch_that_is_let_go_no_copy_is_made(make, monkeypatch):
    bench, copied = make(Photos(), batches=2), []
    monkeypatch.setattr(served_module, "private_copy", lambda tensor: copied.append(tensor) or tensor.clone())
    for mode in (modes.ALL & ~modes.COLLATE, 0):
        bench.run(mode & ~modes.HANDOFF)
        assert not copied
    bench.run(modes.ALL & ~modes.COLLATE)
    assert copied
