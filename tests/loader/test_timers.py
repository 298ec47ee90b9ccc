"""Timers stand in the place of single transforms for a moment, and nothing of them is left."""

import random

import pytest
import torch
from torch import nn
from torchvision.transforms import v2

from bottleneck.loader.calls import Tape
from bottleneck.loader.cut import Timers, find_places


def double(value):
    return value * 2


def add_one(value):
    return value + 1


class Listed:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Shuffling(Listed):
    def __call__(self, value):
        random.Random(3).shuffle(self.transforms)
        return super().__call__(value)


class Renewing(Listed):
    """Makes a list anew each time; another object keeps the old one."""

    def __call__(self, value):
        self.before, self.transforms = self.transforms, list(self.transforms)
        return super().__call__(value)


class Growing(Listed):
    """Its members come to stand where none stood."""

    def __call__(self, value):
        self.transforms = [*self.transforms[:3], *self.transforms[:3]]
        return super().__call__(value)


class Slotted:
    __slots__ = ("transforms",)

    def __init__(self, transforms):
        self.transforms = transforms

    __call__ = Listed.__call__


class Fixed:
    """What it holds cannot be changed."""

    def __init__(self, transforms):
        self._transforms = transforms

    transforms = property(lambda self: self._transforms)
    __call__ = Listed.__call__


class View:
    def __init__(self):
        self.steps = Listed([double])

    def __call__(self, value):
        return self.steps(value) + 1


class Held:
    def __init__(self, transform):
        self.called = []
        places, self.single = find_places([("transform", transform)])
        self.tape = Tape()
        self.timers = Timers(places, self.tape)

    def run(self, transform, value):
        with self.timers.installed():
            self.tape.handler = self.answer
            try:
                return transform(value)
            finally:
                self.tape.handler = None

    def answer(self, place, function, args, kwargs):
        self.called.append(place)
        return function(*args, **kwargs)


def contents(transform):
    """The identities of all that a composition holds, containers included."""
    if isinstance(transform, nn.Module):
        return [id(transform), *(contents(part) for part in transform._modules.values())]
    inner = getattr(transform, "transforms", None)
    if inner is None:
        return id(transform)
    return [id(transform), *(contents(part) for part in inner)]


@pytest.mark.parametrize(
    ("transform", "places"),
    [
        (Listed([double, add_one]), ["transform.transforms[0]", "transform.transforms[1]"]),
        (Listed((double, Listed([add_one]))), ["transform.transforms[0]", "transform.transforms[1].transforms[0]"]),
        (Listed({"a": double}.values()), []),
        (Slotted([double]), ["transform.transforms[0]"]),
        (nn.Sequential(nn.ReLU(), nn.Flatten(0)), ["transform[0]", "transform[1]"]),
        (v2.RandomApply(nn.ModuleList([nn.ReLU()]), p=1.0), ["transform.transforms[0]"]),
        (Listed([View()]), ["transform.transforms[0].steps.transforms[0]", "transform.transforms[0]"]),
        (Fixed((double,)), []),
    ],
    ids=lambda value: "" if isinstance(value, list) else type(value).__name__,
)
def test_each_call_is_answered_and_everything_is_put_back(transform, places):
    held, before = Held(transform), contents(transform)
    inner = getattr(transform, "transforms", None)
    expected = transform(torch.ones(3))
    for _ in range(2):
        held.called.clear()
        assert held.run(transform, torch.ones(3)).tolist() == expected.tolist()
        assert sorted(held.called) == sorted(places)
        assert contents(transform) == before
        assert getattr(transform, "transforms", None) is inner  # the very same list or tuple


def test_a_path_through_named_modules_is_written_as_they_are_reached():
    named = nn.Sequential()
    named.add_module("relu", nn.ReLU())
    places, _ = find_places([("transform", named)])
    assert [place.place for place in places] == ["transform.relu"]


@pytest.mark.parametrize("kind", [Shuffling, Renewing, Growing])
def test_members_that_are_moved_meanwhile_are_put_back_all_the_same(kind):
    parts = [double, add_one, abs]
    transform = kind(list(parts))
    held = Held(transform)
    for _ in range(3):
        held.run(transform, 3)
        for part in (*transform.transforms, *getattr(transform, "before", ())):
            assert not hasattr(part, "_cut_function")
        assert {id(part) for part in transform.transforms} == {id(part) for part in parts}
    assert len(held.called) >= 3


def test_an_exception_passes_and_leaves_no_timer():
    def fail(value):
        raise ValueError(value)

    transform = Listed([double, fail])
    with pytest.raises(ValueError, match="2"):
        Held(transform).run(transform, 1)
    assert transform.transforms == [double, fail]
    assert type(transform.transforms[0]) is type(double)


def test_a_callable_that_is_not_composed_is_single_unless_it_is_a_function():
    places, single = find_places([("loader", double), ("transform", v2.ColorJitter()), ("load", Listed([]).__call__)])
    assert places == []
    assert single == {"transform": "ColorJitter"}


def test_a_composition_at_two_places_of_a_dataset_is_timed_once():
    transform = Listed([double])
    places, single = find_places([("transform", transform), ("transforms", transform)])
    assert [place.place for place in places] == ["transform.transforms[0]"]
    assert single == {}
