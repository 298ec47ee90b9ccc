"""Objects that are pickled with a batch: which, what they take, and whether a step uses them."""

import gc
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pytest
import torch

from bottleneck.measure.evidence import payload
from bottleneck.measure.evidence.payload import WatchedStep, describe_payload
from bottleneck.measure.evidence.pickled import describe_pickled
from bottleneck.results.evidence import Payload


class Graph:
    def __init__(self, nodes=50):
        self.nodes = {node: {"degree": node / 7} for node in range(nodes)}

    def degree(self):
        return len(self.nodes)


class Slotted:
    __slots__ = ("rows",)

    def __init__(self):
        self.rows = [1, 2]


class Listed(list):
    pass


class Refuses:
    def __reduce__(self):
        raise TypeError("stays here")


@dataclass
class Item:
    rows: torch.Tensor
    name: str


def batch(graph=Graph):
    return {"G": [graph() for _ in range(4)], "rows": torch.ones(4, 2), "label": torch.tensor([0, 1, 0, 1])}


def ticking():
    """A clock that advances by a second for each look at it."""
    seconds = count()
    return lambda: float(next(seconds))


def test_objects_are_described_by_their_place():
    (found,) = describe_pickled([batch()] * 3, lambda: 0.0)
    assert (found.path, found.type, found.objects, found.unread) == (
        "['G']",
        f"{__name__.partition('.')[0]}.Graph",
        4,
        None,
    )
    assert 4 * 100 < found.python_objects < 4 * 300
    assert found.pickled_bytes > 4 * 50 * 9


def test_pickling_unpickling_and_releasing_are_timed_apart_from_counting():
    (found,) = describe_pickled([batch()], ticking())
    assert (found.pickle_s, found.unpickle_s) == (1.0, 2.0)


def test_few_batches_are_pickled_if_that_takes_long():
    pickled = set()

    class Slow(Graph):
        def __reduce__(self):
            pickled.add(id(self))
            return Graph, (1,)

    batches = [batch(Slow) for _ in range(3)]
    describe_pickled(batches, ticking())
    assert pickled == set(map(id, batches[0]["G"]))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ((torch.ones(2), ["a", "b"]), {"[1]": ("str", 2)}),
        ([{"meta": {"name": "a", "id": 1}, "x": torch.ones(1)}] * 3, {"[*]['meta']": ("str", 6)}),
        ([Item(torch.ones(1), "a"), Item(torch.ones(1), "b")], {"[*].name": ("str", 2)}),
        ({"rows": np.zeros((2, 2)), "x": torch.ones(1)}, {"['rows']": ("numpy.ndarray", 1)}),
        ({"x": [torch.ones(1), torch.ones(1)], "y": torch.nn.Parameter(torch.ones(1))}, {}),
        ({"x": [torch.ones(1)], "file": Refuses()}, {}),
        (torch.ones(3), {}),
        (None, {"": ("NoneType", 1)}),
    ],
)
def test_places_end_at_the_first_name(value, found):
    assert {seen.path: (seen.type, seen.objects) for seen in describe_pickled([value], lambda: 0.0)} == found


def test_tensors_in_objects_are_not_pickled():
    graph = Graph()
    graph.rows = torch.zeros(100_000)
    (found,) = describe_pickled([{"G": graph}], lambda: 0.0)
    assert found.pickled_bytes < 10_000


def test_what_is_too_large_to_copy_is_left_alone(monkeypatch):
    monkeypatch.setattr("bottleneck.measure.evidence.pickled._MAX_BYTES", 1000)
    assert describe_pickled([{"rows": np.zeros(1000)}], lambda: 0.0) == ()


@pytest.mark.parametrize("enabled", [True, False])
def test_collections_of_garbage_are_as_they_were(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        describe_pickled([batch()], lambda: 0.0)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


# --- what a step uses -------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    """Other tests of this process may have compiled."""
    monkeypatch.setattr(payload, "has_compiled", lambda: False)


def unread(step, make=batch):
    """Return the facts on the objects after a step has run a few times."""
    watched = WatchedStep(step)
    for _ in range(3):
        watched(make())
    found = replace(describe_payload(make()), pickled=describe_pickled([make()], lambda: 0.0))
    return {seen.path: seen.unread for seen in watched.add_unread(found, make()).pickled}


def train(found):
    return found["rows"].sum() + found["label"].sum()


def test_objects_that_a_step_never_touches_are_unread():
    assert unread(train) == {"['G']": True}
    assert "__getattribute__" not in vars(Graph)


@pytest.mark.parametrize(
    "use",
    [
        lambda found: found["G"][0].nodes,
        lambda found: [graph.degree() for graph in found["G"]],
        lambda found: {key: getattr(part[0], "nodes", None) for key, part in found.items()},
    ],
    ids=["attribute", "method", "of everything"],
)
def test_any_attribute_of_one_of_them_counts_as_use(use):
    def step(found):
        train(found)
        use(found)

    assert unread(step) == {"['G']": False}


def test_passing_them_on_is_no_use():
    def step(found):
        moved = {key: part.clone() if isinstance(part, torch.Tensor) else list(part) for key, part in found.items()}
        return train(moved), [isinstance(graph, Graph) for graph in moved["G"]]

    assert unread(step) == {"['G']": True}


@pytest.mark.parametrize("kind", [Slotted, type("Derived", (Graph,), {"__module__": __name__})])
def test_other_classes_written_in_python_are_known_too(kind, monkeypatch):
    monkeypatch.setitem(globals(), kind.__name__, kind)
    assert unread(train, lambda: batch(kind)) == {"['G']": True}


@pytest.mark.parametrize("kind", [str, Listed, lambda: np.zeros(2)], ids=["str", "list", "array"])
def test_of_objects_without_attributes_nothing_is_said(kind):
    assert unread(train, lambda: {**batch(), "G": kind()} | {"other": "text"})["['other']"] is None
    assert not any(unread(train, lambda: {**batch(), "G": (kind(), "a")}).values())


def test_of_a_step_that_reads_no_tensor_nothing_is_said():
    assert unread(lambda found: None) == {"['G']": None}


def test_a_class_with_its_own_way_to_attributes_keeps_it(monkeypatch):
    class Own(Graph):
        def __getattribute__(self, name):
            return super().__getattribute__(name)

    Own.__qualname__ = Own.__name__ = "Own"
    monkeypatch.setitem(globals(), "Own", Own)
    before = vars(Own)["__getattribute__"]
    assert unread(train, lambda: batch(Own)) == {"['G']": True}
    assert vars(Own)["__getattribute__"] is before


def test_a_step_that_fails_leaves_classes_as_they_were():
    def step(found):
        raise ValueError("shapes differ")

    watched = WatchedStep(step)
    for _ in range(2):
        with pytest.raises(ValueError, match="shapes differ"):
            watched(batch())
    assert "__getattribute__" not in vars(Graph)
    assert watched.add_unread(Payload(), batch()) == Payload()
