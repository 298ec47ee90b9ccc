"""The Python objects of a dataset are estimated from a few of them, and data in one piece counts as one."""

import sys

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset

from bottleneck.job.inspect import count_objects


class Holder(Dataset):
    def __init__(self, **held):
        self.__dict__.update(held)


N = 20_000


@pytest.mark.parametrize(
    ("value", "objects"),
    [
        ([f"image-{i}.jpg" for i in range(N)], N),
        ([(f"image-{i}.jpg", i % 10) for i in range(N)], 2 * N),  # the tuple and the name; class numbers are shared
        ({f"key-{i}": float(i) for i in range(N)}, 2 * N),
        ({f"key-{i}" for i in range(N)}, N),
        ([{"text": str(i), "label": i + 1000.5} for i in range(N)], 3 * N),
        (np.array([f"image-{i}.jpg" for i in range(N)], dtype=object), N),
    ],
    ids=["list", "pairs", "dict", "set", "records", "object array"],
)
def test_lists_of_a_dataset(value, objects):
    found = count_objects(Holder(samples=value))
    assert found.objects == pytest.approx(objects, rel=0.1)
    assert found.largest == "self.samples"
    assert found.nbytes > objects * 20


def test_the_memory_is_that_of_the_objects():
    names = [f"image-{i:06}.jpg" for i in range(N)]
    truth = sys.getsizeof(names) + sum(sys.getsizeof(name) for name in names)
    assert count_objects(Holder(samples=names)).nbytes == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(N),
        np.zeros(N),
        np.array([f"{i}" for i in range(N)]),
        list(range(10)),
        [index % 10 for index in range(N)],
        [None] * N,
        [["cat", "dog"][index % 2] for index in range(N)],
    ],
    ids=["tensor", "array", "array of text", "short", "small numbers", "nothing", "two names"],
)
def test_what_is_in_one_piece_or_shared_does_not_count(value):
    assert count_objects(Holder(samples=value)).objects < 100


def test_the_list_of_a_dataset_inside_another_one():
    inner = Holder(samples=[f"image-{i}.jpg" for i in range(N)], few=[f"{i}" for i in range(100)])
    found = count_objects(Subset(inner, range(N)))
    assert found.largest == "self.dataset.samples"
    assert found.objects == pytest.approx(N, rel=0.1)


def test_nothing_is_asked_of_a_list_with_code_of_its_own():
    class Lazy(list):
        def __getitem__(self, index):
            raise AssertionError("loads a file")

    assert count_objects(Holder(samples=Lazy(str(i) for i in range(N)))).objects == pytest.approx(N, rel=0.1)
