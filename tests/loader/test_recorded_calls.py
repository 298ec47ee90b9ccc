"""Calls at cuts are recorded as copies, replayed or skipped, and their outputs found in samples."""

from collections import UserDict, namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch

from bottleneck.job.cuts import CutSite
from bottleneck.loader.calls import Call
from bottleneck.loader.recording.replay import Replay
from bottleneck.loader.recording.store import (
    OutputSlot,
    RecordedBatch,
    RecordedItem,
    RecordingStore,
    find_slots,
    make_fill,
    without_outputs,
)
from tests.loader.cut_photos import AUGMENT, LOAD, Photos, cut_photos, record


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


def test_calls_of_one_site_are_served_in_their_order():
    class Pair(Photos):
        def __getitem__(self, index):
            return [self.load_image(index), self.load_image(index + 1)]

    dataset, tape = cut_photos(Pair())
    _, calls = record(dataset, tape, 0)
    assert [v[0].item() for v in replay(dataset, tape, calls)] == [0.0, 1.0]


def test_served_outputs_are_copies_where_later_code_changes_them():
    class InPlace(Photos):
        def __getitem__(self, index):
            return self.augment(self.load_image(index)).mul_(2)

    dataset, tape = cut_photos(InPlace())
    value, calls = record(dataset, tape, 1)
    for _ in range(3):
        assert replay(dataset, tape, calls, copied=frozenset({"load_image", "augment"})).equal(value)


Pair = namedtuple("Pair", "image label")


@dataclass(frozen=True)
class Sample:
    image: object
    meta: dict


def call(output):
    return Call("transform", print, (), {}, None, original=output)


# --- slots -------------------------------------------------------------------------------------------------


def test_the_output_of_a_cut_is_found_in_the_item():
    image, other = torch.ones(2), torch.zeros(2)
    for value, path in (
        (image, ()),
        ((image, 3), (0,)),
        ({"a": [other, image]}, ("a", 1)),
        (Pair(image, other), (0,)),
        (Sample(image, {}), ("image",)),
        (Sample(other, {"views": [image]}), ("meta", "views", 0)),
    ):
        assert find_slots(value, [call(image)]) == [(0, (), path)]


def test_an_output_that_was_worked_on_afterwards_is_no_hole():
    image = torch.ones(2)
    assert find_slots((image * 2, 1), [call(image)]) == []


def test_the_last_call_that_had_the_object_fills_the_hole():
    image = torch.ones(2)  # in-place augmentations return the object they were given
    assert find_slots((image,), [call(image), call(image)]) == [(1, (), (0,))]


def test_fresh_outputs_are_put_into_a_copy_of_the_sample():
    sample = Sample(Pair(torch.ones(1), 2), {"views": [torch.zeros(1), "x"]})
    for path in (("image", 0), ("meta", "views", 1), ("meta",), ()):
        changed = make_fill(sample, [OutputSlot(1, ("b", 0), path)])(sample, ["not this", {"b": ["new"]}])
        node = changed
        for key in path:
            node = getattr(node, key) if isinstance(node, Sample) else node[key]
        assert node == "new"
        assert type(changed) is (Sample if path else str)
    assert sample.meta["views"][1] == "x"  # the recorded sample stays unchanged
    assert changed != sample
    kept = make_fill(sample, [OutputSlot(0, (), ("meta", "views", 1))])(sample, ["new"])
    assert kept.image is sample.image


def test_what_is_put_into_a_sample_is_not_copied_before():
    # Guards: where collation changes samples, a whole one was copied, though most of it was then replaced.
    sample = ({"image": torch.ones(1), "id": 7}, "label")
    slots = [OutputSlot(1, ("b", 0), (0, "image"))]
    rest = without_outputs(sample, slots)
    assert rest == ({"image": None, "id": 7}, "label")
    assert make_fill(sample, slots)(rest, ["not this", {"b": ["new"]}]) == ({"image": "new", "id": 7}, "label")
    assert without_outputs(sample, []) == sample
    assert without_outputs(sample, [OutputSlot(0, (), ())]) is None


class Refusing(UserDict):
    def __setitem__(self, key, value):
        if value is None:
            raise ValueError(key)
        super().__setitem__(key, value)


def test_a_container_that_keeps_no_none_keeps_its_sample_whole():
    # Guards: a place that is gone would raise in a timed block.
    sample, slots = Refusing(image=torch.ones(1)), [OutputSlot(0, (), ("image",))]
    assert without_outputs(sample, slots) is sample
    assert make_fill(sample, slots)(sample, ["new"])["image"] == "new"


# --- the store ----------------------------------------------------------------------------------------------


def batch(size):
    return RecordedBatch([RecordedItem(n, n, []) for n in range(size)], size)


def test_a_batch_of_the_wanted_size_is_served_if_there_is_one():
    store = RecordingStore(1000)
    small, large, other = batch(1), batch(4), batch(1)
    for each in (small, large, other):
        store.add(each, 1)
    found = [store.next_batch(size) for size in (4, 1, 1, 4)]
    assert [id(each) for each in found] == [id(each) for each in (large, other, small, large)]
    assert store.next_batch(9) in (small, large, other)
