"""The clone of the user's loader keeps every argument, its class and its attributes; the user's stays unchanged."""

import itertools
import pickle

import psutil
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from bottleneck.job.cuts import find_sites
from bottleneck.job.pipeline import Pipeline
from bottleneck.loader import modes
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.ledger import describe_pipeline
from tests.loader.staged_datasets import (
    INDEX,
    LOAD_CALL,
    AsksForItself,
    Traced,
    column,
    note_dataset,
    plain,
    stack,
    switched,
    take,
)


class MyLoader(DataLoader):
    """A subclass with its own signature and attributes, and an iterator around PyTorch's."""

    def __init__(self, root, *, scale):
        super().__init__(Traced(), batch_size=2, num_workers=1, collate_fn=stack)
        self.root, self.scale = root, scale

    def __iter__(self):
        for batch in super().__iter__():
            yield batch * self.scale


def clone_of(loader):
    wrapped = SwitchedLoader(loader, find_sites(loader.dataset), seed=0, hang_s=30.0)
    wrapped.close()
    return wrapped._loader


def forget(number):
    """A worker_init_fn."""


def test_every_argument_is_kept():
    # Also one that a later PyTorch adds, because the whole state is.
    user = DataLoader(
        Traced(), batch_size=3, num_workers=2, pin_memory=True, drop_last=True, timeout=17, prefetch_factor=5,
        generator=torch.Generator(), worker_init_fn=forget, multiprocessing_context="forkserver",
    )  # fmt: skip
    user.brand_new = 5
    before = dict(user.__dict__)
    clone = clone_of(user)
    changed = {name for name, value in user.__dict__.items() if clone.__dict__[name] is not value}
    assert changed == {"dataset", "collate_fn", "worker_init_fn", "persistent_workers", "batch_sampler"}
    assert clone.persistent_workers
    assert user.__dict__ == before


@pytest.mark.parametrize(("timeout", "workers", "expected"), [(0, 1, 30.0), (17, 1, 17), (0, 0, 0)])
def test_a_hanging_worker_is_noticed_also_where_the_user_set_no_timeout(timeout, workers, expected):
    assert clone_of(plain(Traced(), num_workers=workers, timeout=timeout)).timeout == expected


def test_attributes_of_the_dataset_answer_through_the_clone():
    clone = clone_of(plain(Traced(length=40), num_workers=0))
    assert clone.dataset.length == 40
    with pytest.raises(AttributeError):
        _ = clone.dataset.no_such_thing
    assert pickle.loads(pickle.dumps(clone.dataset.engine.sites)) == clone.dataset.engine.sites


@pytest.mark.integration
def test_a_subclass_with_another_signature_and_an_iterator_of_its_own():
    with switched(MyLoader("data", scale=2)) as wrapped:
        assert wrapped._loader.root == "data"
        assert type(wrapped._loader) is MyLoader
        recorded = column(take(wrapped, "after_collate", 20), INDEX)
        assert all(index % 2 == 0 for index in recorded)
        assert not column(take(wrapped, "raw", 4), INDEX) & recorded


class KeepsItsIterator(DataLoader):
    """Makes it for the first batch, as ultralytics' InfiniteDataLoader does."""

    iterator = None

    def __iter__(self):
        if self.iterator is None:
            self.iterator = self._get_iterator()
        for _ in range(3):
            yield next(self.iterator)


@pytest.mark.integration
def test_workers_of_an_iterator_that_a_subclass_makes_late_are_known_and_end():
    with switched(KeepsItsIterator(Traced(length=400), batch_size=2, num_workers=1)) as wrapped:
        take(wrapped, "raw", 7)
        [worker] = [psutil.Process(pid) for pid in wrapped.workers]
        assert wrapped.arrived() is not None
    assert not worker.is_running()


def test_workers_that_go_on_with_an_iterator_that_is_kept_are_persistent():
    # Guards: the advice to set persistent_workers=True, and a wait for workers that are never started.
    loader = KeepsItsIterator(Traced(length=40), batch_size=2)
    pipeline = Pipeline.from_loader(loader, train_step=print)
    assert not describe_pipeline(pipeline, loader)["persistent_workers"]
    next(iter(loader))
    assert describe_pipeline(pipeline, loader)["persistent_workers"]


@pytest.mark.integration
@pytest.mark.parametrize("workers", [0, 1])
def test_user_code_finds_its_own_dataset(workers):
    # Guards: get_worker_info().dataset would be a proxy that the user's code does not know.
    with switched(plain(AsksForItself(), num_workers=workers)) as wrapped:
        for experiment in ("raw", "before_collate"):
            assert column(take(wrapped, experiment, 3), LOAD_CALL) == {1}


@pytest.mark.integration
def test_the_worker_init_fn_works_on_the_users_dataset_before_it_is_cut():
    class SaysLength(Traced):
        def load(self, index):
            return torch.tensor([index, self.length, 0, 0])

    with switched(plain(SaysLength(), worker_init_fn=note_dataset)) as wrapped:
        assert column(take(wrapped, "raw", 6), 1) == {1000, 1001}


@pytest.mark.integration
@pytest.mark.parametrize("workers", [0, 2])
def test_the_users_loader_and_dataset_are_as_they_were(workers):
    dataset = Traced()
    loader = plain(dataset, shuffle=True, num_workers=workers)
    before, state = dict(loader.__dict__), dict(dataset.__dict__)
    with switched(loader) as wrapped:
        take(wrapped, "raw", 3)
    assert loader.__dict__ == before
    assert vars(dataset).keys() == state.keys()  # no cut is left
    assert not workers or vars(dataset) == state


@pytest.mark.integration
def test_a_batch_sampler_of_the_users_decides_the_batches():
    sizes = itertools.cycle([1, 3])

    class Uneven(BatchSampler):
        def __iter__(self):
            indices = iter(self.sampler)
            while batch := list(itertools.islice(indices, next(sizes))):
                yield batch

    loader = DataLoader(Traced(), batch_sampler=Uneven(SequentialSampler(range(400)), 1, False), num_workers=1)
    with switched(loader) as wrapped:
        assert {len(batch) for batch in take(wrapped, "raw", 6)} == {1, 3}
        for experiment in ("after_collate", "before_collate", "before_augment"):
            wrapped.switch(modes.MODE_OF_EXPERIMENT[experiment])
            found = [wrapped.next_batch() for _ in range(8)]
            assert all(len(batch) == size for batch, size in found)
            assert {size for _, size in found} == {1, 3}
