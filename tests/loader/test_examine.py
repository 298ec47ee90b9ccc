"""A few samples made twice: what comes out the same, and that the generators go on as if they were made once."""

import random

import numpy as np
import pytest
import torch

from bottleneck.loader import modes
from bottleneck.loader.examining.examine import ITEM, MAX_ITEMS, Examination, frames_in
from bottleneck.loader.examining.touches import VIEWS
from tests.loader.observer_bench import Marked, Opaque, Photos, Stream, Work, benches

FIRST = 50
EXAMINE = modes.ALL & ~modes.HANDOFF | modes.EXAMINE
make = pytest.fixture(benches)


class Jitter(Work):
    def __call__(self, image):
        return image + torch.rand(1)


class Flip(Work):
    """Random in one of very many cases."""

    def __call__(self, image):
        return image if random.random() < 2 else -image


class OwnGenerator(Work):
    def __init__(self):
        self.numbers = np.random.default_rng(0)

    def __call__(self, image):
        return image + self.numbers.random()


class Once(Opaque):
    """Gives later samples a single time."""

    def __init__(self):
        self.left = set(range(1000))

    def __getitem__(self, index):
        if index >= FIRST:
            self.left.remove(index)
        return torch.zeros(4)


def examine(bench):
    for number in range(8):
        bench.run(EXAMINE, FIRST + 2 * number)
        found = bench.control.examinations.by_worker().get(0)
    return found.items


def same(items):
    """Stage -> whether it gave the same in all of the items."""
    stages = {output.stage for item in items for output in item.outputs}
    return {name: all(o.again for item in items for o in item.outputs if o.stage == name) for name in stages}


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Photos, {"load": True, ITEM: True}),
        (lambda: Photos(Jitter()), {"load": True, ITEM: False}),
        (lambda: Photos(Flip()), {"load": True, ITEM: False}),
        (lambda: Photos(OwnGenerator()), {"load": True, ITEM: False}),
        (Opaque, {ITEM: True}),
        (Marked, {"read": True, "decode": True, ITEM: True}),
        (Stream, {"load": False, ITEM: False}),
        (Once, {ITEM: False}),
    ],
)
def test_what_is_not_random_comes_out_the_same(make, dataset, expected):
    assert same(examine(make(dataset()))) == expected


class Cropped(Opaque):
    """A sample is a small part of what it was taken of."""

    def __getitem__(self, index):
        return torch.zeros(64, 4)[3]


class Table(Opaque):
    """Samples are rows of a kept array."""

    def __init__(self):
        self.rows = torch.zeros(2000, 4)

    def __getitem__(self, index):
        return self.rows[index]


def shared(samples):
    return torch.stack(samples).share_memory_()


@pytest.mark.parametrize(
    ("dataset", "collate_fn", "sent"),
    [
        (Cropped, list, {"fetch": (1024, 16)}),
        (Photos, lambda samples: torch.rand(64, 4)[:1], {"collate": (1024, 16)}),
        (Cropped, torch.stack, {"collate": (16, 16)}),
        (Cropped, shared, {}),
        (Table, list, {}),
        (Cropped, lambda samples: samples[1], {}),  # fails for a single sample
    ],
)
def test_all_of_the_private_memory_behind_a_batch_is_sent(make, dataset, collate_fn, sent):
    bench = make(dataset(), collate_fn)
    bench.engine._user_code.in_worker = True
    for item in examine(bench):
        found = {stage: (seen.nbytes, seen.kept) for (source, stage), seen in item.touched.items() if source == VIEWS}
        assert found == sent


def test_the_generators_go_on_as_after_one_making(make):
    bench = make(Photos(Jitter()))
    items = []
    for mode in (EXAMINE, modes.ALL):
        torch.manual_seed(3)
        bench.run(mode, FIRST)
        items.append(torch.rand(1))
    assert torch.equal(*items)


def test_a_worker_examines_once(make):
    bench = make(Opaque())
    assert len(examine(bench)) == MAX_ITEMS
    bench.control.examinations.write(0, Examination())
    assert examine(bench) == []


@pytest.mark.parametrize(
    ("shape", "frames"),
    [((3, 8, 8), 1), ((16, 3, 8, 8), 16), ((3, 16, 8, 8), 16), ((16, 8, 8, 3), 16), ((16, 8, 8), 16), ((12,), 0)],
)
def test_frames_are_images_in_a_row(shape, frames):
    assert frames_in({"clip": torch.zeros(shape), "label": 3}) == frames
