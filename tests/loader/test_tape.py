"""Calls at cuts are recorded with copies, and user code notices nothing."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from bottleneck.job.cuts import CutSite
from bottleneck.loader.calls import RngState
from tests.loader.cut_photos import AUGMENT, LOAD, Photos, cut_photos, record


class Ticks:
    """A clock that each reading moves on by one second."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 1.0
        return self.now_s


def test_calls_are_recorded_in_order_with_arguments_and_outputs():
    dataset, tape = cut_photos()
    value, calls = record(dataset, tape, 2)
    assert value[0].tolist() == [5.0] * 3
    assert [(tape.stage(call.site), call.kwargs) for call in calls] == [("load", {}), ("augment", {})]
    assert calls[0].args == (2,)
    assert calls[1].args[0].tolist() == [2.0] * 3
    assert calls[1].output.tolist() == [2.5] * 3


def test_recorded_data_is_a_copy_that_later_code_cannot_change():
    class InPlace(Photos):
        def augment(self, image):
            return image.add_(0.5)

        def __getitem__(self, index):
            return self.augment(self.load_image(index)).mul_(2)

    dataset, tape = cut_photos(InPlace())
    value, calls = record(dataset, tape, 1)
    assert value.tolist() == [3.0] * 3
    assert calls[0].output.tolist() == [1.0] * 3
    assert calls[1].args[0].tolist() == [1.0] * 3
    assert calls[1].output.tolist() == [1.5] * 3
    assert calls[1].original is value  # to find it in the sample


def test_an_exception_of_the_user_passes_through_and_leaves_the_tape_ready():
    dataset, tape = cut_photos()
    dataset.load_image._cut_function = lambda index: 1 / 0
    with pytest.raises(ZeroDivisionError), tape.recording():
        _ = dataset[0]
    assert tape.handler is None
    fresh, tape = cut_photos()
    assert len(record(fresh, tape, 0)[1]) == 2


def test_a_call_inside_another_cut_is_not_recorded_twice():
    class Nested(Photos):
        def load_image(self, index):
            return self.decode(index) + 1

        def decode(self, index):
            return torch.zeros(3)

    dataset, tape = cut_photos(Nested(), (LOAD, AUGMENT, CutSite((), "decode", "load")))
    _, calls = record(dataset, tape, 0)
    assert [call.site for call in calls] == ["load_image", "augment"]
    assert not tape.sites.unusable


def test_a_cut_that_does_the_work_of_two_stages_gives_way_to_those_inside():
    class Prepared(Photos):
        def __getitem__(self, index):
            return self.prepare(index)

        def prepare(self, index):
            return self.augment(self.load_image(index))

    dataset, tape = cut_photos(Prepared(), (LOAD, AUGMENT, CutSite((), "prepare", "augment")))
    record(dataset, tape, 0)
    assert "two stages" in tape.sites.unusable["prepare"]
    _, calls = record(dataset, tape, 0)  # now without the outer one
    assert [call.site for call in calls] == ["load_image", "augment"]


@pytest.mark.parametrize("inner", [LOAD, AUGMENT])
def test_a_helper_that_takes_an_index_gives_way_to_what_has_a_name_and_nobody_is_told(inner):
    class Helped(Photos):
        def __getitem__(self, index):
            return self.sample(index)

        def sample(self, index):
            return self.augment(self.load_image(index))

    dataset, tape = cut_photos(Helped(), (inner, CutSite((), "sample", None)))
    record(dataset, tape, 0)
    _, calls = record(dataset, tape, 0)
    assert [call.site for call in calls] == [inner.attribute]
    assert not tape.sites.unusable


def test_the_users_choice_of_an_augmentation_is_kept_although_it_loads():
    class Prepared(Photos):
        def __getitem__(self, index):
            return self.augment(index)

        def augment(self, index):
            return self.load_image(index)

    sites = (LOAD, CutSite((), "augment", "augment", chosen=True))
    dataset, tape = cut_photos(Prepared(), sites)
    assert [call.site for call in record(dataset, tape, 0)[1]] == ["augment"]
    assert not tape.sites.unusable


def test_generators_are_refused_since_their_work_is_done_later():
    class Lazy(Photos):
        def __getitem__(self, index):
            return list(self.augment(self.load_image(index)))

        def augment(self, image):
            yield from image

    dataset, tape = cut_photos(Lazy())
    value, calls = record(dataset, tape, 1)
    assert value == [1.0] * 3  # and the user's code still gets all of it
    assert [call.site for call in calls] == ["load_image"]
    assert "generator" in tape.sites.unusable["augment"]


@pytest.mark.parametrize(
    ("argument", "stage"), [(3, "load"), ("a.png", "load"), (b"raw", "load"), (torch.ones(1), "augment")]
)
def test_a_site_without_a_telling_name_is_known_by_its_arguments(argument, stage):
    class Some(Photos):
        def __getitem__(self, index):
            return self.work(argument)

        def work(self, argument):
            return argument

    dataset, tape = cut_photos(Some(), (CutSite((), "work", None),))
    record(dataset, tape, 0)
    assert tape.stage("work") == stage


def test_calls_in_threads_of_the_datasets_own_are_refused_and_left_alone():
    class Threaded(Photos):
        def __getitem__(self, index):
            with ThreadPoolExecutor(4) as pool:
                return sum(pool.map(self.load_image, range(50)), torch.zeros(3))

    dataset, tape = cut_photos(Threaded())
    value, calls = record(dataset, tape, 1)
    assert value.tolist() == [float(sum(range(50)))] * 3
    assert calls == []
    assert "thread" in tape.sites.unusable["load_image"]


def test_time_spent_copying_is_told_apart_from_the_users():
    dataset, tape = cut_photos(clock=Ticks())
    _, calls = record(dataset, tape, 0)
    assert all(call.ended_s - call.started_s == 1.0 for call in calls)
    assert tape.copying_s() == 4.0  # before and after each of the two calls
    assert tape.copying_s(calls[1].started_s) == 3.0


def test_random_state_of_all_three_generators_is_restored():
    state = RngState.capture()
    first = (random.random(), np.random.rand(), torch.rand(1).item())
    state.restore()
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == first
    state.restore()


def test_a_helper_that_takes_a_number_is_no_loader_because_of_that():
    class Turning(Photos):
        def augment(self, image):
            return image + self.angle(3)

        def angle(self, most):
            return most / 2

    dataset, tape = cut_photos(Turning(), (LOAD, AUGMENT, CutSite((), "angle", None)))
    _, calls = record(dataset, tape, 0)
    assert [call.site for call in calls] == ["load_image", "augment"]
    assert not tape.sites.unusable


def test_a_helper_that_returns_an_iterator_is_no_cut_and_not_worth_telling():
    class Sharing(Photos):
        def __getitem__(self, index):
            return self.augment(self.load_image(next(self.numbers(index))))

        def numbers(self, index):
            return iter([index])

    dataset, tape = cut_photos(Sharing(), (LOAD, AUGMENT, CutSite((), "numbers", None)))
    for _ in range(2):
        _, calls = record(dataset, tape, 1)
    assert [call.site for call in calls] == ["load_image", "augment"]
    assert not tape.sites.unusable
