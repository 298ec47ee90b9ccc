"""Recorded calls are replayed or skipped while the dataset's own code runs."""

import random

import numpy as np
import torch

from bottleneck.job.cuts import CutSite
from bottleneck.loader.calls import RngState
from bottleneck.loader.replay import Replay
from tests.loader.cut_photos import AUGMENT, LOAD, Photos, cut_photos, record


def replay(dataset, tape, calls, *, real=(), index=2, **options):
    """The item again, with all but some sites replayed."""
    dataset.loaded.clear()
    dataset.augmented = 0
    sites = frozenset(call.site for call in calls)
    return Replay(tape, calls, sites - set(real), frozenset(real), **options).run(dataset.__getitem__, index)


def test_replayed_cuts_serve_their_output_and_do_not_run():
    dataset, tape = cut_photos()
    value, calls = record(dataset, tape, 2)
    user = dataset.load_image.__self__
    assert replay(dataset, tape, calls)[0].equal(value[0])
    assert (user.loaded, user.augmented) == ([], 0)
    assert replay(dataset, tape, calls, real=["augment"])[0].equal(value[0])
    assert (user.loaded, user.augmented) == ([], 1)
    assert replay(dataset, tape, calls, real=["load_image"], index=3)[0].equal(value[0])
    assert (user.loaded, user.augmented) == ([3], 0)


def test_nothing_is_replayed_after_the_block():
    dataset, tape = cut_photos()
    _, calls = record(dataset, tape, 2)
    replay(dataset, tape, calls)
    assert dataset[1][0].tolist() == [3.0] * 3


def test_calls_of_one_site_are_served_in_their_order():
    class Pair(Photos):
        def __getitem__(self, index):
            return [self.load_image(index), self.load_image(index + 1)]

    dataset, tape = cut_photos(Pair())
    _, calls = record(dataset, tape, 0)
    assert [v[0].item() for v in replay(dataset, tape, calls)] == [0.0, 1.0]


def test_a_call_inside_a_real_one_does_not_take_anothers_recording():
    class Composed(Photos):
        """The augmentation uses itself, and is called for something else too."""

        def __getitem__(self, index):
            return self.augment(self.load_image(index)), self.jitter(torch.zeros(3))

        def augment(self, image):
            return self.jitter(image) + 1

        def jitter(self, image):
            return image + 0.25

    dataset, tape = cut_photos(Composed(), (LOAD, AUGMENT, CutSite((), "jitter", "augment")))
    value, calls = record(dataset, tape, 2)
    assert [call.site for call in calls] == ["load_image", "augment", "jitter"]
    augment = ["augment", "jitter"]
    again = replay(dataset, tape, calls, real=augment)
    assert [v.tolist() for v in again] == [v.tolist() for v in value]


def test_served_outputs_are_copies_where_later_code_changes_them():
    class InPlace(Photos):
        def __getitem__(self, index):
            return self.augment(self.load_image(index)).mul_(2)

    dataset, tape = cut_photos(InPlace())
    value, calls = record(dataset, tape, 1)
    for _ in range(3):
        assert replay(dataset, tape, calls, copied=frozenset({"load_image", "augment"})).equal(value)


def test_random_numbers_go_on_as_after_the_real_call():
    class Noisy(Photos):
        def __getitem__(self, index):
            image = self.augment(self.load_image(index))
            return image + random.random() + np.random.rand() + torch.rand(1)

        def augment(self, image):
            return image + random.random() + np.random.rand() + torch.rand(1)

    dataset, tape = cut_photos(Noisy())
    state = RngState.capture()
    value, calls = record(dataset, tape, 1, keep_rng=True)
    state.restore()
    assert replay(dataset, tape, calls, restore_rng=True).equal(value)
    state.restore()
    assert not replay(dataset, tape, calls).equal(value)
    state.restore()
