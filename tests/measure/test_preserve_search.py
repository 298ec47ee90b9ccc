"""How far the search for what a train step holds on to goes."""

from torch import nn

from bottleneck.job.inspect import names_in
from bottleneck.measure.preserve.code import assigned_globals, is_installed
from bottleneck.measure.preserve.preserved import preserved
from bottleneck.measure.preserve.restoration import Notes
from bottleneck.measure.preserve.search import Search
from bottleneck.measure.preserve.tensors import TensorVault


def test_objects_of_installed_packages_are_searched_but_not_put_back(monkeypatch):
    class Logger:
        """Stands for a logger of an installed package."""

        def __init__(self):
            self.step = 0
            self.model = nn.Linear(1, 1)

    monkeypatch.setattr(Logger, "__module__", "pytest")  # any installed package
    logger = Logger()
    weight = logger.model.weight.item()

    def step(batch):
        logger.step += 1
        logger.model.weight.data.zero_()

    with preserved(train_step=step):
        step(None)
    assert logger.step == 1
    assert logger.model.weight.item() == weight


def test_the_search_is_bounded_and_says_so():
    chain = last = []
    for _ in range(50):
        last.append([])
        last = last[0]
    notes = Notes()
    search = Search(TensorVault(notes), notes, max_objects=20)
    search.walk(chain, "the train step")
    assert len(search.snapshots) == 20
    assert "ended before it had seen everything" in notes.sentences[0]


def test_the_bound_does_not_count_the_parts_of_a_model():
    notes = Notes()
    model = nn.Sequential(*[nn.Linear(1, 1) for _ in range(50)])
    vault = TensorVault(notes)
    Search(vault, notes, max_objects=5).walk(model, "the model")
    assert len(vault.snapshots) >= 100
    assert notes.sentences == []


def test_cycles_end():
    class Node:
        pass

    left, right = Node(), Node()
    left.other, right.other = right, left
    left.value = 1
    with preserved(train_step=lambda batch: left):
        left.value = 2
    assert left.value == 1


def test_proxies_are_not_touched():
    touched = []

    class Lazy:
        """Would load what it stands for at the first look at its class or an attribute."""

        def __getattribute__(self, name):
            touched.append(name)
            raise AttributeError(name)

    lazy = Lazy()
    with preserved(train_step=lambda batch: lazy):
        pass
    assert touched == []


def test_names_and_assignments_of_code():
    def outer():
        global unknown_global  # noqa: PLW0603 - what is tested
        unknown_global = 1
        return [first_name for _ in second_name]  # noqa: F821 - what is tested

    assert {"first_name", "second_name"} <= names_in(outer.__code__)
    assert assigned_globals(outer.__code__) == {"unknown_global"}


def test_whose_code_it_is():
    assert is_installed("torch.nn")
    assert is_installed("json")
    assert is_installed("sys")
    assert not is_installed("__main__")
    assert not is_installed(__name__)
