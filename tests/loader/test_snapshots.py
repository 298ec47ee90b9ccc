"""Snapshots of a loader that can resume: the user's state travels with the batches that are handed over."""

import pickle

import pytest
import torch
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from bottleneck.job.cuts import find_sites
from bottleneck.job.loader_classes import snapshot_interval
from bottleneck.loader import modes
from bottleneck.loader.snapshots import Snapshots
from bottleneck.loader.switched import SwitchedLoader
from tests.loader.engine_bench import Photos


class Resumable(Photos):
    """A dataset whose state grows with its samples."""

    taken = 0

    asked = None
    """A file that gets a letter whenever the state is asked for."""

    def __getitem__(self, index):
        self.taken += 1
        return torch.full((2,), float(index))

    def state_dict(self):
        if self.asked is not None:
            with self.asked.open("a") as file:
                file.write("x")
        return {"taken": self.taken, "names": {"a": ["x"] * 1000}}

    def load_state_dict(self, state):
        self.taken = state["taken"]


class Counting:
    """An iterator with a state."""

    def __init__(self):
        self.given = 0

    def __next__(self):
        self.given += 1
        return torch.full((2,), float(self.given))

    def __iter__(self):
        return self

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.given = state["given"]


class CountingStream(IterableDataset):
    def __iter__(self):
        return Counting()


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 1.0
        return self.now_s


def test_a_snapshot_holds_the_state_of_what_has_one():
    dataset = Resumable()
    assert Snapshots(lambda: {"dataset": dataset}).take() == {"dataset": dataset.state_dict()}
    assert Snapshots(lambda: {"dataset": Photos()}).take() == {}


def test_only_what_has_changed_is_sent():
    dataset, clock = Resumable(), Clock()
    snapshots = Snapshots(lambda: {"dataset": dataset}, clock)
    assert snapshots.time_one().count == 0  # there is nothing to compare it with
    dataset.taken = 7
    times = snapshots.time_one()
    assert (times.count, times.state_s, times.pickle_s, times.unpickle_s) == (1, 1.0, 1.0, 1.0)
    assert times.pickled_bytes == len(pickle.dumps([7]))


@pytest.mark.parametrize("state", [torch.ones(500), [torch.ones(2), torch.ones(2)]])
def test_tensors_are_compared_as_the_loader_compares_them(state):
    dataset = Resumable()
    dataset.state_dict = lambda: {"state": [*state] if isinstance(state, list) else state.clone()}
    snapshots = Snapshots(lambda: {"dataset": dataset})
    snapshots.time_one()
    assert snapshots.time_one().pickled_bytes < 500


def test_loaders_that_take_snapshots():
    assert snapshot_interval(StatefulDataLoader(Photos(), num_workers=1)) == 1
    assert snapshot_interval(StatefulDataLoader(Photos(), num_workers=1, snapshot_every_n_steps=20)) == 20
    assert snapshot_interval(StatefulDataLoader(Photos(), num_workers=0)) is None
    assert snapshot_interval(torch.utils.data.DataLoader(Photos(), num_workers=1)) is None


@pytest.fixture
def running(tmp_path):
    opened = []

    def run(dataset, **settings):
        dataset.asked = tmp_path / "asked"
        loader = StatefulDataLoader(dataset, batch_size=2, num_workers=1, **settings)
        opened.append(SwitchedLoader(loader, find_sites(dataset), seed=0, hang_s=30.0))
        opened[-1].start()
        return opened[-1]

    yield run
    for loader in opened:
        loader.close()


def asked_for_state(loader):
    """Return how often the workers ask the dataset for its state while they make some batches."""
    asked = loader.user_dataset.asked
    before = len(asked.read_text()) if asked.exists() else 0
    for _ in range(4):
        loader.next_batch()
    return len(asked.read_text()) - before


@pytest.mark.integration
@pytest.mark.untimed
def test_the_state_travels_with_what_is_handed_over_and_with_nothing_else(running):
    loader = running(Resumable())
    assert asked_for_state(loader) >= 3
    loader.switch_real()
    assert asked_for_state(loader) <= 1  # of the last one before
    loader.switch(modes.HANDOFF | modes.RECORD)
    assert asked_for_state(loader) >= 3
    loader.switch_real(modes.OBSERVE)
    asked_for_state(loader)
    (times,) = loader.snapshots()
    assert times.count >= 2
    assert 0 < times.pickled_bytes / times.count < 200  # the names never change


@pytest.mark.integration
@pytest.mark.untimed
def test_snapshots_are_as_rare_as_the_loaders(running):
    loader = running(Resumable(), snapshot_every_n_steps=1000)
    asked_for_state(loader)  # once, as the worker starts
    assert asked_for_state(loader) == 0


@pytest.mark.integration
@pytest.mark.untimed
def test_the_state_of_a_streams_iterator_travels_too(running):
    loader = running(CountingStream())
    loader.switch_real(modes.OBSERVE)
    for _ in range(6):
        loader.next_batch()
    (times,) = loader.snapshots()
    assert times.count >= 2
    assert times.pickled_bytes > 0
