"""Calls at cuts are recorded with copies, replayed or skipped, and user code notices nothing."""

import copy
import pickle
import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset
from torchvision import transforms

from bottleneck.pipeline.cuts import CutSite, find_sites
from bottleneck.staging import stages
from bottleneck.staging.cutting import Cut, Playback, RngState, StopAfterCut, Tape, install


class Ticks:
    """A clock that each reading moves on by one second."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 1.0
        return self.now_s


class Photos(Dataset):
    """Load, augment, then a finishing step; counts what really runs."""

    def __init__(self):
        self.loaded = []
        self.augmented = 0

    def __len__(self):
        return 4

    def __getitem__(self, index):
        image = self.load_image(index)
        image = self.augment(image)
        return image * 2, index

    def load_image(self, index):
        self.loaded.append(index)
        return torch.full((3,), float(index))

    def augment(self, image):
        self.augmented += 1
        return image + 0.5


LOAD = CutSite((), "load_image", "load")
AUGMENT = CutSite((), "augment", "augment")
BOTH = frozenset({0, 1})


def cut_photos(dataset=None, sites=(LOAD, AUGMENT), **options):
    tape = Tape(**options)
    dataset = install(dataset or Photos(), sites, tape, in_place=False)
    return dataset, tape


def record(dataset, tape, index, **options):
    with tape.recording(**options) as calls:
        value = dataset[index]
    return value, calls


# --- standing in -------------------------------------------------------------------------------------------


def test_a_cut_passes_calls_through_while_nothing_is_recorded():
    dataset, _ = cut_photos()
    assert dataset[3][0].tolist() == [7.0] * 3


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
    assert tape.cuts
    assert not tape.unusable
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
    assert set(tape.cuts) == {0}
    assert "TypeError" in tape.unusable[1]


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


# --- recording ---------------------------------------------------------------------------------------------


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
    assert [call.site for call in calls] == [0, 1]
    assert not tape.unusable


def test_a_cut_that_does_the_work_of_two_stages_gives_way_to_those_inside():
    class Prepared(Photos):
        def __getitem__(self, index):
            return self.prepare(index)

        def prepare(self, index):
            return self.augment(self.load_image(index))

    dataset, tape = cut_photos(Prepared(), (LOAD, AUGMENT, CutSite((), "prepare", "augment")))
    record(dataset, tape, 0)
    assert "two stages" in tape.unusable[2]
    _, calls = record(dataset, tape, 0)  # now without the outer one
    assert [call.site for call in calls] == [0, 1]


def test_the_users_choice_of_an_augmentation_is_kept_although_it_loads():
    class Prepared(Photos):
        def __getitem__(self, index):
            return self.augment(index)

        def augment(self, index):
            return self.load_image(index)

    sites = (LOAD, CutSite((), "augment", "augment", chosen=True))
    dataset, tape = cut_photos(Prepared(), sites)
    assert [call.site for call in record(dataset, tape, 0)[1]] == [1]
    assert not tape.unusable


def test_generators_are_refused_since_their_work_is_done_later():
    class Lazy(Photos):
        def __getitem__(self, index):
            return list(self.augment(self.load_image(index)))

        def augment(self, image):
            yield from image

    dataset, tape = cut_photos(Lazy())
    value, calls = record(dataset, tape, 1)
    assert value == [1.0] * 3  # and the user's code still gets all of it
    assert [call.site for call in calls] == [0]
    assert "generator" in tape.unusable[1]


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
    assert tape.stage(0) == stage


def test_time_spent_copying_is_told_apart_from_the_users():
    dataset, tape = cut_photos(clock=Ticks())
    _, calls = record(dataset, tape, 0)
    assert all(call.ended_s - call.started_s == 1.0 for call in calls)
    assert tape.copying_s() == 4.0  # before and after each of the two calls
    assert tape.copying_s(calls[1].started_s) == 3.0


# --- replaying ---------------------------------------------------------------------------------------------


def play(mode, **options):
    return Playback(stages.WITHIN_SAMPLE & ~mode, BOTH, **options)


def replay(dataset, tape, calls, mode, index=2, **options):
    dataset.loaded.clear()
    dataset.augmented = 0
    with tape.replaying(calls, play(mode, **options)):
        return dataset[index]


def test_replayed_cuts_serve_their_output_and_do_not_run():
    dataset, tape = cut_photos()
    value, calls = record(dataset, tape, 2)
    user = dataset.load_image.__self__
    assert replay(dataset, tape, calls, stages.FINISH)[0].equal(value[0])
    assert (user.loaded, user.augmented) == ([], 0)
    assert replay(dataset, tape, calls, stages.FINISH | stages.AUGMENT)[0].equal(value[0])
    assert (user.loaded, user.augmented) == ([], 1)
    assert replay(dataset, tape, calls, stages.FINISH | stages.LOAD, index=3)[0].equal(value[0])
    assert (user.loaded, user.augmented) == ([3], 0)


def test_nothing_is_replayed_after_the_block():
    dataset, tape = cut_photos()
    _, calls = record(dataset, tape, 2)
    replay(dataset, tape, calls, 0)
    assert dataset[1][0].tolist() == [3.0] * 3


def test_the_code_behind_the_augmentation_can_be_left_out():
    dataset, tape = cut_photos()
    _, calls = record(dataset, tape, 2)
    with pytest.raises(StopAfterCut):
        replay(dataset, tape, calls, stages.AUGMENT, stop_after_augment=True)
    assert not isinstance(StopAfterCut(), Exception)  # passes `except Exception` in the user's code


def test_it_stops_after_the_last_of_several_augmentations():
    class Twice(Photos):
        def __getitem__(self, index):
            return [self.augment(self.load_image(index)), self.augment(self.load_image(index))]

    dataset, tape = cut_photos(Twice())
    user = dataset.augment.__self__
    _, calls = record(dataset, tape, 0)
    user.augmented = 0
    with pytest.raises(StopAfterCut):
        replay(dataset, tape, calls, stages.AUGMENT, stop_after_augment=True)
    assert user.augmented == 2


def test_calls_of_one_site_are_served_in_their_order():
    class Pair(Photos):
        def __getitem__(self, index):
            return [self.load_image(index), self.load_image(index + 1)]

    dataset, tape = cut_photos(Pair())
    _, calls = record(dataset, tape, 0)
    assert [v[0].item() for v in replay(dataset, tape, calls, 0)] == [0.0, 1.0]


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
    assert [call.site for call in calls] == [0, 1, 2]
    sites = frozenset({0, 1, 2})
    options = {"recorded_arguments": True, "copy_arguments": sites}
    with tape.replaying(calls, Playback(stages.LOAD, sites, **options)):
        again = dataset[2]
    assert [v.tolist() for v in again] == [v.tolist() for v in value]


def test_served_outputs_are_copies_where_later_code_changes_them():
    class InPlace(Photos):
        def __getitem__(self, index):
            return self.augment(self.load_image(index)).mul_(2)

    dataset, tape = cut_photos(InPlace())
    value, calls = record(dataset, tape, 1)
    for _ in range(3):
        assert replay(dataset, tape, calls, stages.FINISH, copy_outputs=True).equal(value)


def test_recorded_arguments_replace_those_given_and_are_copied_for_sites_that_change_them():
    class InPlace(Photos):
        def augment(self, image):
            return image.add_(1)

    dataset, tape = cut_photos(InPlace())
    _, calls = record(dataset, tape, 1)
    options = {"recorded_arguments": True, "copy_arguments": BOTH}
    for _ in range(3):
        assert replay(dataset, tape, calls, stages.LOAD | stages.AUGMENT, index=3, **options)[0].tolist() == [4.0] * 3


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
    assert replay(dataset, tape, calls, stages.FINISH, restore_rng=True).equal(value)
    state.restore()
    assert not replay(dataset, tape, calls, stages.FINISH).equal(value)
    state.restore()


def test_random_state_of_all_three_generators_is_restored():
    state = RngState.capture()
    first = (random.random(), np.random.rand(), torch.rand(1).item())
    state.restore()
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == first
    state.restore()
