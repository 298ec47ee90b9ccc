"""The work of a worker in each mode, in this process: the stages that run, and their output."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import default_collate

from bottleneck.loader import engine as engine_module
from bottleneck.loader import modes, trees
from bottleneck.loader.recording import copies
from bottleneck.loader.recording.copies import CopyOnPickle, checksum, storages
from tests.loader.engine_bench import (
    LADDER,
    RUN_AUGMENT,
    RUN_COLLATE,
    RUN_LOAD,
    Batched,
    LoadedInline,
    NothingBehind,
    OnlyLoaderCut,
    Opaque,
    Photos,
    Stream,
    engines,
    work,
)
from tests.loader.test_trees import quantised

make = pytest.fixture(engines)


class Stacked(Photos):
    def __getitems__(self, indices):
        work(self, RUN_LOAD)
        return torch.zeros(len(indices), 3), torch.tensor(indices)


def test_a_batch_that_the_dataset_stacks_has_as_many_samples_as_were_asked_for(make):
    # Guards: the pair of tensors counted as two samples, so that a job was ten times slower without its loading.
    bench = make(Stacked(), size=5, collate_fn=lambda batch: batch)
    assert bench.plan.batch_sizes == (5, 5)
    batch, ran = bench.run("before_collate")
    assert len(batch[0]) == 5
    assert ran == {RUN_COLLATE}


@pytest.mark.parametrize("kind", [Photos, OnlyLoaderCut, LoadedInline, NothingBehind, Opaque, Batched])
def test_every_experiment_serves_the_recorded_batches_in_turn(make, kind):
    bench = make(kind())
    for name in LADDER[:-1]:
        if bench.plan.strategy == "fetch" and name == "before_augment":
            continue
        found = [bench.run(name)[0] for _ in range(4)]
        assert [batch[1].tolist() for batch in found] == [[0, 1], [2, 3]] * 2
        expected = [default_collate([kind()[i] for i in pair]) for pair in ((0, 1), (2, 3))]
        assert all(trees.equal(batch, expected[n % 2]) for n, batch in enumerate(found))


def test_loading_really_loads_what_was_asked_for_also_where_the_augmentation_is_replayed(make):
    bench = make(NothingBehind())
    assert bench.run("raw", first=70)[0][1].tolist() == [70, 71]
    batch, ran = bench.run(modes.ALL & ~modes.AUGMENT, first=70)
    assert batch[1].tolist() == [70, 71]
    assert batch[0][:, 0].tolist() == [0.5, 1.5]  # the recorded output
    assert RUN_LOAD in ran


def test_in_a_worker_cached_batches_are_written_where_the_collation_wrote_them(make, monkeypatch):
    # Guards: otherwise the queue copies them once more, and the hand-off looks dearer than it is.
    for module in (engine_module, torch.utils.data):  # PyTorch's own collation asks, too
        monkeypatch.setattr(module, "get_worker_info", lambda: SimpleNamespace(id=0))
    batch = make(Photos(), batches=1).run("after_collate")[0]
    images, indices = batch
    assert images.is_shared()
    assert isinstance(indices, CopyOnPickle)  # made of Python numbers: the queue moves it there
    assert not storages(batch) & storages(make(Photos(), batches=1).run("after_collate")[0])


def test_an_augmentation_that_works_in_place_gets_fresh_arguments(make):
    class InPlace(NothingBehind):
        def augment(self, image):
            work(self, RUN_AUGMENT)
            return image.add_(0.5)

    bench = make(InPlace(), batches=1)
    assert bench.plan.copy_arguments
    first, second = bench.run("before_augment")[0], bench.run("before_augment")[0]
    assert trees.equal(first, second)
    assert first[0][:, 0].tolist() == [0.5, 1.5]


class Erasing(NothingBehind):
    """Works in place once told to, which is after it has been checked."""

    erases = False

    def augment(self, image):
        work(self, RUN_AUGMENT)
        if self.erases:
            image.zero_()
        return image + 0.5


def test_a_recorded_argument_that_decays_is_told_in_the_end(make):
    # Guards: a recorded argument decays over thousands of servings, and a check of two items misses it.
    bench = make(Erasing())
    bench.run("before_augment")
    bench.run(modes.HANDOFF | modes.CHECK)
    assert bench.control.changed.read() == [[]]
    bench.engine._user_code.dataset.erases = True
    bench.run("raw")  # serves nothing, and changes nothing recorded
    bench.run(modes.HANDOFF | modes.CHECK)
    assert bench.control.changed.read() == [[]]
    bench.run("before_augment")
    bench.run(modes.HANDOFF | modes.CHECK)
    assert bench.control.changed.read() == [["arguments of `augment`"]]


def test_an_output_that_decays_is_told_in_the_end(make):
    class Scaling(Photos):
        scales = False

        def __getitem__(self, index):
            image = self.augment(self.load_image(index))
            return (image.mul_(2) if self.scales else image), index

    bench = make(Scaling())
    bench.engine._user_code.dataset.scales = True
    bench.run(modes.ALL & ~modes.AUGMENT)
    bench.run(modes.HANDOFF | modes.CHECK)
    assert bench.control.changed.read() == [["samples", "outputs of `augment`"]]


class Target:
    def __init__(self):
        self.boxes = torch.ones(2, 4)


CHANGES = [
    (torch.zeros(3), lambda t: t.numpy().fill(1)),
    (torch.zeros(4, 4, dtype=torch.bfloat16).T, lambda t: t.fill_(1)),
    (quantised(1.0), lambda t: t.copy_(torch.zeros(3))),
    (np.zeros((4, 4))[:, ::2], lambda a: a.fill(1)),
    (bytearray(3), lambda b: b.append(1)),
    (Image.new("L", (2, 2)), lambda image: image.putpixel((0, 0), 9)),
    ({"boxes": [1, 2], "label": 3}, lambda d: d.pop("label")),
    ({"boxes": [1, 2]}, lambda d: d["boxes"].append(3)),
    (Target(), lambda t: t.boxes.mul_(2)),
    (Target(), lambda t: setattr(t, "boxes", t.boxes[:1])),
]


@pytest.mark.parametrize(("value", "change"), CHANGES, ids=lambda value: type(value).__name__)
def test_what_is_changed_in_place_is_noticed(value, change):
    before = checksum([value, "label"])
    assert checksum([value, "label"]) == before
    change(value)
    assert checksum([value, "label"]) != before


def test_without_workers_a_batch_is_served_itself_and_told_if_it_decays(make):
    # Guards: without workers, a copy of a batch was served instead of its collation, and takes as long.
    bench = make(Photos())
    bench.control.publish_plan(replace(bench.plan, copy_batches=False))
    served = [bench.run("after_collate")[0][0] for _ in range(4)]
    assert len(storages(served)) == 2
    served[0].zero_()
    bench.run(modes.HANDOFF | modes.CHECK)
    assert bench.control.changed.read() == [["batches"]]


def test_of_a_batch_that_is_let_go_no_copy_is_made(make, monkeypatch):
    bench, copied = make(Photos(), batches=2), []
    monkeypatch.setattr(copies, "private_copy", lambda tensor: copied.append(tensor) or tensor.clone())
    for mode in (modes.ALL & ~modes.COLLATE, 0):
        bench.run(mode & ~modes.HANDOFF)
        assert not copied
    bench.run(modes.ALL & ~modes.COLLATE)
    assert copied


# --- kinds of datasets -------------------------------------------------------------------------------------


def test_without_batching(make):
    bench = make(Photos(), batched=False, collate_fn=lambda sample: sample, size=1)
    assert bench.run("raw")[0][1] == 50
    for name in LADDER[:-1]:
        assert [bench.run(name)[0][1] for _ in range(4)] == [0, 1, 0, 1]
    assert bench.run("before_augment")[1] == {RUN_COLLATE, RUN_AUGMENT}


@pytest.mark.parametrize("endless", [False, True])
def test_streams_go_on_for_ever_and_are_cut_too(make, endless):
    bench = make(Stream(endless=endless))
    assert bench.plan.strategy == "template"
    assert bench.run("after_collate")[1] == set()
    assert bench.run("before_collate")[1] == {RUN_COLLATE}
    assert bench.run("before_augment")[1] == {RUN_COLLATE, RUN_AUGMENT}
    found = [bench.run("raw")[0][:, 0].tolist() for _ in range(4)]
    assert found == [[4.5, 0.5], [1.5, 2.5], [3.5, 4.5], [0.5, 1.5]]  # on from the fifth of five, and round again


def test_a_batch_that_was_begun_before_the_recording_is_not_kept(make):
    bench = make(Stream(length=50), batches=0, size=4)
    bench.control.mode = modes.ALL
    begun = [next(bench.stream), next(bench.stream)]
    bench.control.mode = modes.RECORD | modes.ALL
    bench.engine.collate([*begun, next(bench.stream), next(bench.stream)])
    assert bench.engine.report().batch_sizes == ()
    assert not bench.engine.report().changes_samples
    bench.record()
    assert bench.engine.report().batch_sizes == (4,)
    assert not bench.engine.report().changes_samples
