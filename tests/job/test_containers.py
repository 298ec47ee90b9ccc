"""The content of containers, and of objects that hold tensors and move them."""

from collections import namedtuple
from collections.abc import MutableMapping
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bottleneck.job import containers
from bottleneck.job.containers import describe_structure

ROWS, EDGES = torch.zeros(3, 2), torch.zeros(2, 4, dtype=torch.int64)


class Store(MutableMapping):
    """A container of a graph's tensors."""

    def __init__(self, parent, **tensors):
        self.parent, self.held = parent, tensors

    __getitem__, __setitem__, __delitem__ = (lambda self, key: self.held[key]), None, None

    def __iter__(self):
        return iter(self.held)

    def __len__(self):
        return len(self.held)


class Graph:
    """As PyTorch Geometric's `Data`: no mapping, and its tensors are two levels down."""

    def __init__(self):
        self.kind, self._store, self.itself = dict, Store(self, x=ROWS, edges=EDGES), [self]

    def to(self, device):
        return self


class Instances:
    """As detectron2's: fields, one of them an object again."""

    def __init__(self):
        self.image_size, self._fields = (4, 4), {"boxes": Boxes(), "classes": EDGES}

    def to(self, device):
        return self


class Boxes:
    def __init__(self):
        self.tensor = ROWS

    def to(self, device):
        return self


def found(value):
    return {path: id(tensor) for path, tensor in containers.tensors(value)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (ROWS, {"": ROWS}),
        ({"a": [ROWS, "text"]}, {"['a'][0]": ROWS}),
        (Graph(), {"._store.x": ROWS, "._store.edges": EDGES}),
        ((Graph(), EDGES), {"[0]._store.x": ROWS, "[0]._store.edges": EDGES, "[1]": EDGES}),
        ([Instances()], {"[0]._fields['boxes'].tensor": ROWS, "[0]._fields['classes']": EDGES}),
        (SimpleNamespace(x=ROWS), {}),  # an object that moves nothing may be anything
        (nn.Linear(2, 2), {}),
        (Graph, {}),
        (None, {}),
    ],
)
def test_tensors_are_found_in_containers_and_in_objects_that_move_them(value, expected):
    assert found(value) == {path: id(tensor) for path, tensor in expected.items()}


Pair = namedtuple("Pair", "image label")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.zeros(2, 3), "float32 [2, 3]"),
        ((torch.zeros(4, dtype=torch.uint8), 3), "(uint8 [4], int)"),
        (Pair(torch.zeros(1), "cat"), "Pair(float32 [1], str)"),
        ({"x": [torch.zeros(1), None]}, "{x: list(float32 [1], None)}"),
        ({"images/" * 9: 1, ("a", 1): 2}, "{images/images/images: int, ('a', 1): int}"),
        ([[[[1, 2]]]], "list(list(list(list)))"),
        (dict.fromkeys(range(50), 1), "{0: int, 1: int, 2: int, 3: int, 4: int, 5: int, 44 more}"),
    ],
)
def test_structures_in_words(value, words):
    assert describe_structure(value) == words
