"""Items that try another index, or mix several: each stage is charged what it does, or the item is not cut."""

import pytest
import torch

from bottleneck.loader import modes
from tests.loader.engine_bench import (
    RUN_AUGMENT,
    RUN_COLLATE,
    RUN_FINISH,
    RUN_LOAD,
    NothingBehind,
    Photos,
    engines,
    work,
)

make = pytest.fixture(engines)


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


class RaisingAtOnce(Raising):
    broken = (0,)


class Returning(Photos):
    """The same, with None for what cannot be read."""

    def __getitem__(self, index):
        image = self.load_image(index)
        if image is None:
            return self[index + 1]
        image = self.augment(image)
        if self.finishes:
            work(self, RUN_FINISH)
            image = image * 2
        return image, index

    def load_image(self, index):
        image = super().load_image(index)
        return None if index % 3 == 0 else image


class ReturningWithNothingBehind(Returning):
    finishes = False


class Mosaic(NothingBehind):
    """Four images in one."""

    def __getitem__(self, index):
        parts = [self.load_image(torch.randint(100, ()).item()) for _ in range(3)]
        return self.augment(torch.cat([self.load_image(index), *parts])), index


class MixedUp(NothingBehind):
    """Two augmented images in one; `always`, or with each second item only."""

    always = True

    def __getitem__(self, index):
        image = self.augment(self.load_image(index))
        if self.always or index % 2:
            image = image + self.augment(self.load_image(index + 1))
        return image, index


class SometimesMixedUp(MixedUp):
    always = False


def ran(bench, experiment):
    """How often each stage ran for a batch of two."""
    bench.run(experiment)
    return {stage: bench.log.count(stage) for stage in set(bench.log) - {RUN_COLLATE}}


def test_a_retry_after_an_error_is_part_of_loading(make):
    bench = make(Raising(), batches=3)
    assert bench.plan.strategy == "template"
    assert ran(bench, "before_augment") == {RUN_AUGMENT: 2}
    assert ran(bench, modes.ALL & ~modes.AUGMENT) == {RUN_LOAD: 2, RUN_FINISH: 2}


def test_a_retry_of_the_first_item_needs_no_replay_either(make):
    bench = make(RaisingAtOnce(), batches=3)
    assert bench.plan.strategy == "template"
    assert ran(bench, "before_augment") == {RUN_AUGMENT: 2}


def test_a_retry_after_a_look_is_part_of_loading_where_the_augmentation_comes_last(make):
    bench = make(ReturningWithNothingBehind(), batches=3)
    assert bench.plan.strategy == "template"
    assert ran(bench, "before_augment") == {RUN_AUGMENT: 2}


def test_a_mosaic_loads_four_times(make):
    bench = make(Mosaic(), batches=3)
    assert bench.plan.strategy == "template"
    assert ran(bench, "before_augment") == {RUN_AUGMENT: 2}
    assert ran(bench, modes.ALL & ~modes.AUGMENT) == {RUN_LOAD: 8}


def test_a_mix_of_two_augmented_images_does_everything_twice(make):
    bench = make(MixedUp(), batches=3)
    assert bench.plan.strategy == "template"
    assert ran(bench, "before_augment") == {RUN_AUGMENT: 4}
    assert ran(bench, modes.ALL & ~modes.AUGMENT) == {RUN_LOAD: 4}
    assert ran(bench, "before_collate") == {}


def test_a_mix_of_some_items_augments_as_often_as_it_did(make):
    bench = make(SometimesMixedUp(), batches=3)
    assert bench.plan.strategy == "template"
    assert ran(bench, "before_augment") == {RUN_AUGMENT: 3}
    assert ran(bench, modes.ALL & ~modes.AUGMENT) == {RUN_LOAD: 3}
