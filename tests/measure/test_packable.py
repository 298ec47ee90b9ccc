"""Small tensors at the same place of each sample of a batch, and how many would carry them."""

import pytest
import torch

from bottleneck.measure.evidence.packable import by_place
from bottleneck.measure.evidence.payload import describe_payload

PICTURES = torch.zeros(4, 3, 64, 64)


def target(boxes, **changes):
    corners = torch.zeros(boxes, 4)
    return {"boxes": corners, "area": corners[:, 0].clone(), "size": torch.tensor([8, 8]), **changes}


def places(batch):
    return {place.path: (place.tensors, place.bytes) for place in describe_payload(batch).packable}


def test_targets_of_each_sample_are_one_place_for_each_of_their_names():
    batch = (PICTURES, [target(boxes) for boxes in (1, 3, 2, 1)])
    assert places(batch) == {
        "[1][*]['boxes']": (4, 7 * 16),
        "[1][*]['area']": (4, 7 * 4),
        "[1][*]['size']": (4, 4 * 16),
    }
    found = describe_payload(batch)
    assert found.tensor_count == 13
    assert found.packed_tensor_count == 1 + 3 + 1  # with the lengths that boxes and areas share


def test_two_ways_of_dividing_take_two_tensors_of_lengths():
    batch = [target(boxes, points=torch.zeros(5 - boxes)) for boxes in (1, 3, 2, 1)]
    assert describe_payload(batch).packed_tensor_count == 4 + 2


@pytest.mark.parametrize(
    "batch",
    [
        PICTURES,
        [PICTURES, torch.zeros(4, dtype=torch.long)],
        {"a": torch.zeros(4), "b": torch.zeros(4)},
        [torch.zeros(2), torch.zeros(2, 2)],
        [torch.zeros(2, 3), torch.zeros(2, 4)],
        [torch.zeros(3, 640, 640), torch.zeros(3, 640, 640)],
        "text",
    ],
    ids=["one", "a pair", "named apart", "dimensions", "shapes", "large", "no tensor"],
)
def test_what_one_tensor_cannot_carry_or_need_not(batch):
    found = describe_payload(batch)
    assert (found.packable, found.packed_tensor_count) == ((), None)


def test_an_index_that_does_not_vary_stays_in_the_path():
    found = by_place([("[0]['a'][1]", 1), ("[1]['a'][1]", 2), ("['b']", 3)])
    assert found == {"[*]['a'][1]": [1, 2], "['b']": [3]}
