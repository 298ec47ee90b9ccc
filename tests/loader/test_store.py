"""What a worker has recorded: where outputs stand in it, in which order it comes, and what memory it takes."""

from collections import UserDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bottleneck.loader.calls import Call
from bottleneck.loader.replay import OutputSlot, find_slots, make_fill, without_outputs
from bottleneck.loader.store import RecordedBatch, RecordedItem, RecordingStore

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


def test_parts_of_an_output_are_found():
    image, boxes = torch.ones(2), torch.zeros(2)
    slots = find_slots({"boxes": boxes, "image": image}, [call((image, {"b": boxes}))])
    assert sorted(slots, key=str) == sorted([(0, (0,), ("image",)), (0, (1, "b"), ("boxes",))], key=str)


def test_an_output_that_was_worked_on_afterwards_is_no_hole():
    image = torch.ones(2)
    assert find_slots((image * 2, 1), [call(image)]) == []


def test_numbers_are_never_taken_for_an_output():
    assert find_slots((1, None, "a"), [call(1), call(None), call("a")]) == []


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
    assert sample.meta["views"][1] == "x"  # the recorded sample stays as it is
    assert changed != sample
    kept = make_fill(sample, [OutputSlot(0, (), ("meta", "views", 1))])(sample, ["new"])
    assert kept.image is sample.image


def test_several_outputs_go_into_one_sample():
    sample = (torch.ones(1), {"a": [1, torch.zeros(1)]}, "label")
    slots = [OutputSlot(0, (), (0,)), OutputSlot(1, (), (1, "a", 1))]
    assert make_fill(sample, slots)(sample, ["first", "second"]) == ("first", {"a": [1, "second"]}, "label")
    assert make_fill(sample, [])(sample, []) == sample


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


class Dropping(UserDict):
    def __setitem__(self, key, value):
        if value is None:
            self.data = {name: kept for name, kept in self.data.items() if name != key}
        else:
            super().__setitem__(key, value)


@pytest.mark.parametrize("kind", [Refusing, Dropping])
def test_a_container_that_keeps_no_none_keeps_its_sample_whole(kind):
    # Guards: a place that is gone would raise in a timed block.
    sample, slots = kind(image=torch.ones(1)), [OutputSlot(0, (), ("image",))]
    assert without_outputs(sample, slots) is sample
    assert make_fill(sample, slots)(sample, ["new"])["image"] == "new"


# --- the store ----------------------------------------------------------------------------------------------


def batch(size):
    return RecordedBatch([RecordedItem(n, n, []) for n in range(size)], size)


def test_batches_come_in_the_order_in_which_they_were_recorded():
    # Guards: one cached sample stays hot in the processor's cache; a store of distinct ones does not.
    store = RecordingStore(1000)
    batches = [batch(2) for _ in range(3)]
    for each in batches:
        store.add(each, 10)
    assert [id(store.next_batch(None)) for _ in range(7)] == [id(batches[n]) for n in (0, 1, 2, 0, 1, 2, 0)]


def test_a_batch_of_the_wanted_size_is_served_if_there_is_one():
    store = RecordingStore(1000)
    small, large, other = batch(1), batch(4), batch(1)
    for each in (small, large, other):
        store.add(each, 1)
    found = [store.next_batch(size) for size in (4, 1, 1, 4)]
    assert [id(each) for each in found] == [id(each) for each in (large, other, small, large)]
    assert store.next_batch(9) in (small, large, other)


@given(st.integers(0, 100), st.lists(st.integers(0, 40), max_size=20))
def test_it_never_takes_more_than_its_memory(budget, sizes):
    store = RecordingStore(budget)
    for size in sizes:
        if store.has_room(size):
            store.add(batch(1), size)
    assert store.nbytes <= budget
    assert store.nbytes == sum(sizes[: len(store.batches)]) or len(store.batches) < len(sizes)
