"""Trees of every container that datasets and collate functions return are copied, compared and sized."""

import dataclasses
import math
import threading
import warnings
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from bottleneck.loader import objects, trees


class Pair(NamedTuple):
    image: object
    label: object


Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Box:
    corners: torch.Tensor
    name: str = "box"


@dataclasses.dataclass(frozen=True)
class FrozenBox:
    corners: torch.Tensor
    tags: list


@dataclasses.dataclass(frozen=True, slots=True)
class SlottedBox:
    corners: torch.Tensor


class Encoding(UserDict):
    """Like a tokenizer's batch."""


class Refusing:
    """Neither copied nor pickled: it holds a lock."""

    def __init__(self):
        self.lock = threading.Lock()

    def __eq__(self, other):
        raise RuntimeError("not comparable")

    __hash__ = None


class Plain:
    def __init__(self, number):
        self.number = number


class Graph:
    """Holds tensors, and compares by identity, as the samples of graph and detection libraries do."""

    def __init__(self, nodes):
        self.__dict__["store"] = {"nodes": nodes}
        self.__dict__["whole"] = self


class Slots:
    __slots__ = ("nodes",)

    def __init__(self, nodes):
        self.nodes = nodes


class Ambiguous(Plain):
    """Its comparison gives an array."""

    def __eq__(self, other):
        return self.number == other.number

    __hash__ = None


def nested(*lengths):
    with warnings.catch_warnings():  # of a prototype
        warnings.simplefilter("ignore")
        return torch.nested.as_nested_tensor([torch.ones(length) for length in lengths])


def quantised(scale):
    with warnings.catch_warnings():  # about deprecated types that are still in use
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(3), scale, 0, torch.qint8)


def samples():
    image = Image.new("RGB", (4, 3), (1, 2, 3))
    return [
        {"x": torch.arange(6).reshape(2, 3), "y": [1, "two", None, b"3"]},
        OrderedDict(b=torch.ones(2), a=np.arange(3)),
        defaultdict(list, {"a": [torch.zeros(1)]}),
        Encoding({"ids": torch.arange(4)}),
        Pair(image, 7),
        Point(torch.tensor(1.0), (np.float32(2.0), 3)),
        Box(torch.ones(4)),
        FrozenBox(torch.ones(4), ["a", torch.zeros(2)]),
        SlottedBox(torch.ones(4)),
        [torch.tensor([1.0, math.nan]), np.array([math.nan, 1.0]), math.nan],
        torch.return_types.max((torch.ones(2), torch.zeros(2, dtype=torch.int64))),
        torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)]),
        (torch.Size([2, 3]), 1 + 2j),
        torch.eye(3).to_sparse(),
        quantised(0.1),
        torch.zeros(0, 3),
        Graph(torch.ones(2)),
        Slots(torch.ones(2)),
        Ambiguous(torch.ones(2)),
        nested(2, 3),
    ]


@pytest.mark.parametrize("value", samples(), ids=lambda value: type(value).__name__)
def test_copy_is_equal_of_the_same_type_and_shares_no_data(value):
    copied = trees.copy_deep(value)
    assert type(copied) is type(value)
    assert trees.equal(value, copied)
    assert trees.similar(value, copied)
    for before, after in zip(trees.leaves(value), trees.leaves(copied), strict=True):
        if isinstance(before, torch.Tensor) and before.layout == torch.strided and before.numel():
            assert before.data_ptr() != after.data_ptr()
        elif isinstance(before, (np.ndarray, Image.Image)):
            assert before is not after


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2), torch.ones(2, 1)),
        (torch.tensor([1.0, math.nan]), torch.tensor([math.nan, 1.0])),
        (np.ones(2), np.ones(2, dtype=np.float32)),
        (np.ones(4), np.ones((2, 2))),
        (Image.new("RGB", (2, 2)), Image.new("L", (2, 2))),
        (Image.new("L", (2, 2)), Image.new("L", (2, 3))),
        ([1, 2], (1, 2)),
        ([1, 2], [1, 2, 3]),
        ({"a": 1}, {"b": 1}),
        (1, 1.0),
        (True, 1),
        (math.nan, 0.0),
        (Plain(1), Plain(2)),
        (Graph(torch.ones(2)), Graph(torch.zeros(2))),
        (Slots(torch.ones(2)), Slots(torch.zeros(2))),
        (Ambiguous(torch.ones(2)), Ambiguous(torch.zeros(2))),
        (nested(2, 3), nested(2, 2)),
        (quantised(0.1), quantised(0.2)),
        (Pair(1, 2), Pair(1, 3)),
    ],
)
def test_what_differs_is_not_equal(a, b):
    assert not trees.equal(a, b)


def test_what_refuses_to_be_copied_is_handed_on_and_counts_as_equal():
    value = {"handle": Refusing(), "x": torch.ones(2)}
    copied = trees.copy_deep(value)
    assert copied["handle"] is value["handle"]
    assert copied["x"] is not value["x"]
    assert trees.equal(value, copied)
    assert trees.nbytes(value) > 0


@pytest.mark.parametrize(
    "holding", [lambda x: {"x": x}, lambda x: Encoding(x=x), Graph, Slots], ids=["dict", "mapping", "graph", "slots"]
)
def test_a_batch_on_another_device_is_not_the_same(holding):
    # Guards: comparing across devices raises, and a batch that was moved in its container was taken for unchanged.
    here, there = torch.ones(2), torch.ones(2, device="meta")
    assert trees.equal(holding(there), holding(there.clone()))
    assert not trees.equal(holding(here), holding(there))


def test_a_tensor_that_cannot_be_compared_may_have_changed(monkeypatch):
    monkeypatch.setattr(torch, "equal", Refusing().__eq__)
    value = torch.ones(2)
    assert not trees.equal([value], [value.clone()])


def test_a_dtype_without_a_comparison_is_compared_by_its_bytes():
    value = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    assert trees.equal([value], [value.clone()])
    assert not trees.equal([value], [torch.tensor([1.0, 4.0]).to(torch.float8_e4m3fn)])


def test_similar_compares_kinds_not_sizes():
    a = {"x": torch.zeros(3, 4), "boxes": [1, 2, 3], "image": Image.new("RGB", (4, 4))}
    b = {"x": torch.ones(5, 2), "boxes": [9], "image": Image.new("RGB", (2, 7))}
    assert trees.similar(a, b)
    assert not trees.similar(a, {**b, "x": torch.ones(5)})
    assert not trees.similar(a, {**b, "x": torch.ones(5, 2, dtype=torch.int64)})
    assert not trees.similar(a, {**b, "image": Image.new("L", (2, 7))})
    assert not trees.similar(a, {"x": b["x"]})
    assert not trees.similar(np.zeros(3), np.zeros((3, 1)))


def test_nbytes_counts_data_once_and_containers_too():
    tensor = torch.zeros(1000)
    assert 4000 <= trees.nbytes([tensor]) < 4300
    assert trees.nbytes([tensor, tensor]) < 4300
    assert trees.nbytes([tensor, tensor.clone()]) >= 8000
    assert trees.nbytes({"a": np.zeros(500), "b": Image.new("L", (100, 10))}) >= 5000
    assert trees.nbytes(["x" * 1000, b"y" * 1000]) >= 2000
    assert trees.nbytes(Plain("z" * 1000)) >= 1000


class Labelled(Plain):
    """A graph with its own function, which cannot be pickled."""

    def __init__(self, number):
        super().__init__(number)
        self.label = lambda: number


def views_of_one_storage():
    everything = torch.arange(100_000.0)
    return everything, [everything[at : at + 10] for at in range(0, 50, 10)]


@pytest.mark.parametrize("holding", [Graph, Slots, Plain])
def test_an_object_counts_what_it_holds_of_a_storage_not_all_of_it(holding):
    # Guards: each graph of a data set in memory counted all graphs, 1.71 GiB instead of 3 MB.
    everything, views = views_of_one_storage()
    sizes = [trees.nbytes(holding(view)) for view in views]
    assert all(40 <= size < 1000 for size in sizes)
    assert trees.nbytes([holding(view) for view in views]) < 5000
    assert trees.nbytes(holding(everything)) >= everything.nbytes
    assert trees.nbytes(holding([views[0], views[0]])) < 1000
    assert trees.nbytes(holding(np.arange(1000.0))) >= 8000


@pytest.mark.parametrize("holding", [Graph, Slots, Plain])
def test_a_copy_of_an_object_holds_no_more_than_that(holding):
    everything, views = views_of_one_storage()
    value = holding({"one": views[1], "same": views[1], "other": views[2]})
    copied = trees.copy_deep(value)
    assert trees.equal(copied, value)
    held = {tensor.untyped_storage().data_ptr(): tensor for tensor in objects.find_tensors(copied)}
    assert sum(tensor.untyped_storage().nbytes() for tensor in held.values()) == 80
    assert everything.untyped_storage().data_ptr() not in held


@pytest.mark.parametrize("tensor", [torch.nn.Parameter(torch.ones(2)), (torch.ones(2, requires_grad=True) * 2)])
def test_tensors_in_a_copied_object_stay_what_they_are(tensor):
    copied = trees.copy_deep(Plain(tensor)).number
    assert type(copied) is type(tensor)
    assert copied.requires_grad
    assert copied.data_ptr() != tensor.data_ptr()


def test_an_object_that_cannot_be_pickled_is_copied_all_the_same():
    value = Labelled(torch.ones(2))
    copied = trees.copy_deep(value)
    assert copied is not value
    assert copied.number is not value.number
    assert trees.nbytes(value) > 0


def test_copier_copies_a_leaf_once_until_it_changes():
    copier, leaf = trees.Copier(), torch.zeros(3)
    first = copier.copy([leaf])[0]
    assert copier.copy({"again": leaf})["again"] is first
    leaf.add_(1)
    later = copier.copy(leaf)
    assert later is not first
    assert first.tolist() == [0, 0, 0]
    assert later.tolist() == [1, 1, 1]


def test_copier_never_takes_a_new_object_for_an_old_one_that_is_gone():
    copier = trees.Copier()
    for number in range(100):  # the interpreter gives the same address again and again
        assert copier.copy(np.array([number])).tolist() == [number]


def test_large_data_is_compared_a_piece_at_a_time(monkeypatch):
    # Guards: to compare a batch of 500 MB at once takes over a GB more, on a device that the job may nearly fill.
    monkeypatch.setattr(trees, "_PIECE_BYTES", 1000)
    compared, real = [], torch.equal
    monkeypatch.setattr(torch, "equal", lambda a, b: compared.append(a.nbytes) or real(a, b))
    a = torch.arange(3000.0).reshape(1, 3000)
    b = a.clone()
    assert trees.equal(a, b)
    assert compared == [1000] * 12
    b[0, -1] += 1
    assert not trees.equal(a, b)


def test_nothing_large_is_copied_to_compare_images_with_channels_last(monkeypatch):
    monkeypatch.setattr(trees, "_PIECE_BYTES", 1000)
    made, real = [], trees.tensor_bytes
    monkeypatch.setattr(trees, "tensor_bytes", lambda tensor: made.append(tensor.nbytes) or real(tensor))
    a = torch.arange(6000.0).reshape(4, 3, 20, 25).to(memory_format=torch.channels_last)
    b = a.clone()
    assert trees.equal(a, b)
    assert max(made) <= 1000
    b[3, 2, 19, 24] += 1
    assert not trees.equal(a, b)
