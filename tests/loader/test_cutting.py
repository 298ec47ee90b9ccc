"""Stand-ins for callables are put in and taken out, and user code notices nothing."""

import copy
import random
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.transforms import v2

from bottleneck.job.cuts import CutSite
from bottleneck.job.inspect import Item, resolve
from bottleneck.loader.calls import Tape
from bottleneck.loader.cut import Timers, find_places, install, put_back, step_aside
from tests.job.test_cuts import Listed, double
from tests.loader.cut_photos import AUGMENT, LOAD, Photos, cut_photos

# --- their places -------------------------------------------------------------------------------------------


class Deep:
    """A holder whose callables lie in containers."""

    def __init__(self, **held):
        self.__dict__.update(held)


Pair = namedtuple("Pair", "first second")


def increment(value):
    return value + 1


def deep_cases():
    sequential = torch.nn.Sequential(torch.nn.Identity())
    return [
        (Deep(steps=[increment]), ("steps", 0)),
        (Deep(steps=(len, increment)), ("steps", 1)),
        (Deep(steps=Pair(increment, len)), ("steps", 0)),
        (Deep(steps={"a": increment}), ("steps", Item("a"))),
        (Deep(stages=[Deep(args=(increment,), kw={})]), ("stages", 0, "args", 0)),
        (Deep(nested=(((increment,),),)), ("nested", 0, 0, 0)),
        (Deep(sequential=sequential), ("sequential", "_modules", Item("0"))),
        (Deep(inner=Deep(modules=torch.nn.ModuleList([torch.nn.Identity()]))), ("inner", "modules", 0)),
        (Deep(composed=v2.Compose([increment])), ("composed", "transforms", 0)),
    ]


def state_of(holder, path):
    levels = [resolve(holder, path[:length]) for length in range(len(path))]
    return [dict(vars(level)) if hasattr(level, "__dict__") else copy.copy(level) for level in levels]


@pytest.mark.parametrize(("holder", "path"), deep_cases(), ids=lambda value: value if isinstance(value, tuple) else "")
def test_a_path_through_containers_is_cut_and_put_back(holder, path):
    before, kinds = state_of(holder, path), [type(resolve(holder, path[:length])) for length in range(len(path))]
    tape = Tape()
    undo = install(holder, (CutSite(path[:-1], path[-1], "augment"),), tape)
    assert not tape.sites.unusable
    with tape.recording() as calls:
        resolve(holder, path)(torch.ones(1))
    assert len(calls) == 1
    assert [type(resolve(holder, path[:length])) for length in range(len(path))] == kinds
    put_back(undo)
    assert state_of(holder, path) == before


def test_two_cuts_share_the_tuple_that_they_are_in():
    holder = Deep(steps=(increment, increment))
    before, tape = holder.steps, Tape()
    undo = install(holder, tuple(CutSite(("steps",), position, "augment") for position in range(2)), tape)
    with tape.recording() as calls:
        assert [step(1) for step in holder.steps] == [2, 2]
    assert [call.site for call in calls] == ["steps[0]", "steps[1]"]
    put_back(undo)
    assert holder.steps is before


def test_methods_and_a_member_of_a_cut_are_put_back_too():
    user = Photos()
    user.transform = transforms.Compose([increment])
    before = dict(vars(user))
    sites = (LOAD, CutSite((), "transform", "augment"), CutSite(("transform", "transforms"), 0, "load"))
    tape = Tape()
    undo = install(user, sites, tape)
    assert not tape.sites.unusable
    assert type(user.transform.transforms[0]).__name__ == "Cut"
    assert "load_image" in vars(user)
    put_back(undo)
    assert vars(user) == before
    assert user.transform.transforms == [increment]


def test_a_frozen_dataclass_is_cut_too():
    @dataclass(frozen=True)
    class Frozen(Dataset):
        augment: Callable

        def __getitem__(self, index):
            return self.augment(index)

    user, tape = Frozen(increment), Tape()
    undo = install(user, (AUGMENT,), tape)
    assert not tape.sites.unusable
    with tape.recording() as calls:
        assert user[1] == 2
    assert len(calls) == 1
    put_back(undo)
    assert user.augment is increment


# --- standing in -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("augment", [increment, transforms.Compose([increment]), len, torch.nn.Identity()])
def test_calls_are_recorded_again_once_a_cut_no_longer_steps_aside(augment):
    dataset, tape = Deep(augment=augment), Tape()
    install(dataset, (CutSite((), "augment", "augment"),), tape)
    value = torch.ones(2)
    for aside in (True, True, False, False, True, False):
        step_aside(tape.cuts, aside=aside)
        with tape.recording() as calls:
            assert torch.equal(torch.as_tensor(dataset.augment(value)), torch.as_tensor(augment(value)))
        assert len(calls) == (not aside)


def test_an_object_that_refuses_attributes_is_left_out_with_the_reason():
    class Stubborn(Photos):
        def __setattr__(self, name, value):
            if name == "augment":
                raise TypeError("no")
            super().__setattr__(name, value)

    _, tape = cut_photos(Stubborn())
    assert set(tape.sites.stages) == {"load_image"}
    assert "TypeError" in tape.sites.unusable["augment"]


def test_isinstance_and_attributes_still_hold():
    user = Photos()
    user.augment = original = transforms.Compose([transforms.RandomHorizontalFlip()])
    dataset, _ = cut_photos(user)
    assert isinstance(dataset.augment, transforms.Compose)
    assert len(dataset.augment.transforms) == 1
    assert repr(dataset.augment) == repr(original)
    assert vars(dataset.augment) == vars(original)  # no trace for code that walks through the dataset
    assert dataset.load_image.__name__ == "load_image"
    with pytest.raises(AttributeError):
        _ = dataset.augment.no_such_thing


def test_special_methods_of_the_callable_still_work():
    # A dataset may iterate over its augmentation, or index it, instead of calling it.
    user = Photos()
    user.augment = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    dataset, _ = cut_photos(user)
    assert len(dataset.augment) == 2
    assert [type(layer).__name__ for layer in dataset.augment] == ["Identity", "ReLU"]
    assert isinstance(dataset.augment[1], torch.nn.ReLU)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_user_code_may_copy_its_augmentation(duplicate):
    user = Photos()
    user.augment = transforms.ColorJitter(0.5)
    dataset, _ = cut_photos(user)
    copied = duplicate(dataset.augment)
    assert isinstance(copied, transforms.ColorJitter)
    assert copied.brightness == (0.5, 1.5)
    assert copied(Image.new("RGB", (2, 2))).size == (2, 2)


class Shuffling(Listed):
    def __call__(self, value):
        random.Random(3).shuffle(self.transforms)
        return super().__call__(value)


class Sampling(Listed):
    def __call__(self, value):
        self.transforms = random.Random(3).sample(self.transforms, len(self.transforms))
        return super().__call__(value)


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
        (Listed([double, increment]), ["transform.transforms[0]", "transform.transforms[1]"]),
        (Listed((double, Listed([increment]))), ["transform.transforms[0]", "transform.transforms[1].transforms[0]"]),
        (Listed({"a": double}.values()), []),
        (nn.Sequential(nn.ReLU(), nn.Flatten(0)), ["transform[0]", "transform[1]"]),
        (v2.RandomApply(nn.ModuleList([nn.ReLU()]), p=1.0), ["transform.transforms[0]"]),
        (Listed([View()]), ["transform.transforms[0].steps.transforms[0]", "transform.transforms[0]"]),
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


@pytest.mark.parametrize("kind", [Shuffling, Sampling])
def test_members_that_are_moved_while_they_are_timed_are_put_back(kind):
    parts = [double, increment, abs]
    transform = kind(list(parts))
    held = Held(transform)
    for _ in range(3):
        held.run(transform, 3)
        assert {id(part) for part in transform.transforms} == {id(part) for part in parts}
    assert len(held.called) >= 3


def test_a_callable_that_is_not_composed_is_single_unless_it_is_a_function():
    places, single = find_places([("loader", double), ("transform", v2.ColorJitter()), ("load", Listed([]).__call__)])
    assert places == []
    assert single == {"transform": "ColorJitter"}
