"""Calls at cuts are recorded with copies, replayed or skipped, and user code notices nothing."""

import copy
import pickle
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset
from torchvision import transforms
from torchvision.transforms import v2

from bottleneck.job.cuts import CutSite, find_sites
from bottleneck.job.inspect import Item, resolve
from bottleneck.loader.calls import Tape
from bottleneck.loader.cut import Cut, install, step_aside
from tests.loader.cut_photos import AUGMENT, Photos, cut_photos, record

# --- where they are put ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("number", range(len(deep_cases())))
@pytest.mark.parametrize("in_place", [True, False])
def test_a_path_through_containers_is_cut_in_place_or_on_copies(number, in_place):
    holder, path = deep_cases()[number]
    original = resolve(holder, path)
    levels = [resolve(holder, path[:length]) for length in range(len(path))]
    before = [dict(vars(level)) if hasattr(level, "__dict__") else copy.copy(level) for level in levels]
    tape = Tape()
    cut = install(holder, (CutSite(path[:-1], path[-1], "augment"),), tape, in_place=in_place)
    assert not tape.sites.unusable
    with tape.recording() as calls:
        resolve(cut, path)(torch.ones(1))
    assert len(calls) == 1
    for length in range(len(path)):
        assert type(resolve(cut, path[:length])) is type(resolve(holder, path[:length]))
    if in_place:
        assert cut is holder
        return
    assert resolve(holder, path) is original
    after = [dict(vars(level)) if hasattr(level, "__dict__") else copy.copy(level) for level in levels]
    assert before == after


@pytest.mark.parametrize("in_place", [True, False])
def test_two_cuts_share_the_tuple_that_they_are_in(in_place):
    holder = Deep(steps=(increment, increment))
    tape = Tape()
    sites = tuple(CutSite(("steps",), position, "augment") for position in range(2))
    cut = install(holder, sites, tape, in_place=in_place)
    with tape.recording() as calls:
        assert [step(1) for step in cut.steps] == [2, 2]
    assert [call.site for call in calls] == ["steps[0]", "steps[1]"]


def test_a_cut_and_a_member_of_it_are_both_cut_on_copies():
    user = Photos()
    user.augment = transforms.Compose([increment])
    sites = (AUGMENT, CutSite(("augment", "transforms"), 0, "load"))
    dataset, tape = cut_photos(user, sites)
    assert not tape.sites.unusable
    assert user.augment.transforms == [increment]
    assert type(user.augment) is transforms.Compose
    assert type(dataset.augment.transforms[0]).__name__ == "Cut"


@pytest.mark.parametrize("in_place", [True, False])
def test_a_frozen_dataclass_is_cut_too(in_place):
    @dataclass(frozen=True)
    class Frozen(Dataset):
        augment: Callable

        def __getitem__(self, index):
            return self.augment(index)

    user = Frozen(increment)
    tape = Tape()
    dataset = install(user, (AUGMENT,), tape, in_place=in_place)
    assert not tape.sites.unusable
    with tape.recording() as calls:
        assert dataset[1] == 2
    assert len(calls) == 1
    assert in_place or user.augment is increment


# --- standing in -------------------------------------------------------------------------------------------


def test_a_cut_passes_calls_through_while_nothing_is_recorded():
    dataset, _ = cut_photos()
    assert dataset[3][0].tolist() == [7.0] * 3


@pytest.mark.parametrize("augment", [increment, transforms.Compose([increment]), len, torch.nn.Identity()])
def test_calls_are_recorded_again_once_a_cut_no_longer_steps_aside(augment):
    user = Deep(augment=augment)
    tape = Tape()
    dataset = install(user, (CutSite((), "augment", "augment"),), tape, in_place=False)
    value = torch.ones(2)
    for aside in (True, True, False, False, True, False):
        step_aside(tape.cuts, aside=aside)
        with tape.recording() as calls:
            assert torch.equal(torch.as_tensor(dataset.augment(value)), torch.as_tensor(augment(value)))
        assert len(calls) == (not aside)


def test_the_users_dataset_is_not_touched_when_copies_are_cut():
    user = Photos()
    before = dict(user.__dict__)
    cut_photos(user)
    assert user.__dict__ == before
    assert "augment" not in user.__dict__


def test_every_level_is_copied_and_only_the_copies_are_cut():
    inner = Photos()
    user = Subset(ConcatDataset([inner, inner.__class__()]), [5, 2])
    sites = find_sites(user, "dataset.datasets[1].augment")
    tape = Tape()
    dataset = install(user, sites, tape, in_place=False)
    assert tape.sites.stages
    assert not tape.sites.unusable
    with tape.recording() as calls:
        assert dataset[0][0].tolist() == [3.0] * 3
    assert [tape.stage(call.site) for call in calls] == ["load", "augment"]
    assert isinstance(dataset.dataset.datasets[1].augment, type(inner.augment))
    for level in (user, user.dataset, inner, user.dataset.datasets[1]):
        assert not any(isinstance(value, Cut) for value in vars(level).values() if type(value) is Cut)
    assert user.dataset.datasets[0] is inner


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Subset(d, range(4))], ids=["itself", "subset"])
def test_a_dataset_that_is_there_twice_is_cut_both_times(wrap):
    inner = Photos()
    user = ConcatDataset([wrap(inner), wrap(inner)])  # a usual way to see each sample twice an epoch
    tape = Tape()
    dataset = install(user, find_sites(user), tape, in_place=False)
    for index in (1, 5):
        assert [tape.stage(call.site) for call in record(dataset, tape, index)[1]] == ["load", "augment"]
    assert type(vars(inner).get("augment")).__name__ != "Cut"
    assert user.datasets[0] is not dataset.datasets[0]


def test_an_augmentation_deep_in_other_objects_is_cut_on_copies_too():
    class Holder:
        def __init__(self):
            self.steps = [lambda image: image + 1]

        def run(self, image):
            return self.steps[0](image)

    user = Photos()
    user.pipeline = Holder()
    sites = find_sites(user, "pipeline.run")
    tape = Tape()
    dataset = install(user, sites, tape, in_place=False)
    with tape.recording() as calls:
        assert dataset.pipeline.run(1) == 2
    assert len(calls) == 1
    assert "run" not in vars(user.pipeline)


def test_a_worker_cuts_its_own_dataset_in_place():
    user = Photos()
    assert install(user, (AUGMENT,), Tape(), in_place=True) is user
    assert type(user.augment).__name__.startswith("Cut")


def test_an_object_that_refuses_attributes_is_left_out_with_the_reason():
    class Stubborn(Photos):
        def __setattr__(self, name, value):
            if name == "augment":
                raise TypeError("no")
            super().__setattr__(name, value)

    _, tape = cut_photos(Stubborn())
    assert set(tape.sites.stages) == {"load_image"}
    assert "TypeError" in tape.sites.unusable["augment"]


def test_slots_are_copied_too():
    class Slotted(Photos):
        __slots__ = ("extra",)

    user = Slotted()
    user.extra = 5
    dataset, _ = cut_photos(user)
    assert dataset.extra == 5
    assert dataset is not user


def test_isinstance_and_attributes_still_hold():
    user = Photos()
    user.augment = transforms.Compose([transforms.RandomHorizontalFlip()])
    dataset, _ = cut_photos(user)
    assert isinstance(dataset.augment, transforms.Compose)
    assert len(dataset.augment.transforms) == 1
    assert repr(dataset.augment) == repr(user.augment)
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


def test_user_code_may_change_its_augmentation():
    user = Photos()
    user.augment = transforms.RandomHorizontalFlip(0.5)
    dataset, _ = cut_photos(user)
    dataset.augment.p = 1.0
    assert user.augment.p == 1.0


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_user_code_may_copy_its_augmentation(duplicate):
    user = Photos()
    user.augment = transforms.ColorJitter(0.5)
    dataset, _ = cut_photos(user)
    copied = duplicate(dataset.augment)
    assert isinstance(copied, transforms.ColorJitter)
    assert copied.brightness == (0.5, 1.5)
    assert copied(Image.new("RGB", (2, 2))).size == (2, 2)


def test_user_code_may_pickle_its_augmentation():
    user = Photos()
    user.augment = transforms.ColorJitter(0.5)
    dataset, _ = cut_photos(user)
    assert pickle.loads(pickle.dumps(dataset.augment)).brightness == (0.5, 1.5)


def test_a_dataset_without_a_place_to_cut_is_not_copied():
    rows = np.zeros((4, 3))
    assert install(rows, (), Tape(), in_place=False) is rows
