"""Whatever a DataLoader can be told: the slow part is named."""

import functools

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, Sampler
from torchdata.stateful_dataloader import StatefulDataLoader

from tests.kinds.slow_parts import (
    BATCH_SIZE,
    Map,
    NamedBySplit,
    NamedLoader,
    Pieces,
    RepeatingLoader,
    Rows,
    ScaledLoader,
    Stream,
    check_slow_part,
    check_slow_part_of,
    collate_of,
    collate_slowly,
    name_folder,
    rest,
)

pytestmark = pytest.mark.integration


class Uneven(Sampler):
    """Batches of their own sizes, as tuples or lists."""

    def __init__(self, kind=list):
        self.kind = kind

    def __iter__(self):
        for first in range(0, 60_000, 4):
            yield self.kind(range(first, first + 3))
            yield self.kind(range(first + 3, first + 4))

    def __len__(self):
        return 30_000


class EveryThird(Sampler):
    """Indices of any type."""

    def __init__(self, kind=int):
        self.kind = kind

    def __iter__(self):
        return (self.kind(number) for number in range(0, 90_000, 3))

    def __len__(self):
        return 30_000


def with_size(number):
    return number, 4


# --- which samples -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slow", "kind"), [("load", list), ("augment", tuple)])
def test_batches_of_uneven_sizes(slow, kind):
    check_slow_part(slow, Map(slow), batch_sampler=Uneven(kind))


def test_no_batching_and_a_list_of_indices_for_each_item():
    sampler = BatchSampler(RandomSampler(range(10_000)), BATCH_SIZE, drop_last=False)
    check_slow_part("augment", Pieces("augment"), batch_size=None, sampler=sampler)


@pytest.mark.parametrize(
    ("slow", "kind"),
    [("load", np.int64), ("augment", torch.tensor), ("augment", with_size)],
    ids=["numpy", "tensor", "tuple"],
)
def test_indices_of_any_type(slow, kind):
    budget = 6.0 if kind is torch.tensor else None  # sending tensors to a worker takes milliseconds, as part of `load`
    check_slow_part(slow, Rows(slow), budget, sampler=EveryThird(kind))


def test_the_share_of_a_distributed_sampler():
    dataset = Map("load")
    sampler = DistributedSampler(dataset, num_replicas=4, rank=1, drop_last=True)
    check_slow_part("load", dataset, sampler=sampler, drop_last=True)
    assert sampler.epoch == 0


def test_a_generator_of_the_users_is_left_as_it_was():
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    check_slow_part("load", Map("load"), shuffle=True, generator=generator)
    assert torch.equal(generator.get_state(), before)


# --- workers -----------------------------------------------------------------------------------------------


def test_a_worker_init_fn_that_writes_to_its_dataset():
    check_slow_part("load", NamedBySplit("load"), worker_init_fn=name_folder)


@pytest.mark.parametrize(
    ("slow", "options"),
    [
        ("load", {"persistent_workers": True}),
        ("augment", {"in_order": False, "num_workers": 2}),
        ("collate", {"pin_memory": True}),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
def test_other_settings(slow, options):
    check_slow_part(slow, Map(slow), collate_fn=collate_of(slow), **options)


# --- collate functions -------------------------------------------------------------------------------------


class CollatesItself(Map):
    def collate(self, samples):
        return collate_slowly(samples)


def collate_up_to(number, samples):
    return collate_slowly(samples[:number])


@pytest.mark.parametrize(
    "collate_fn",
    [CollatesItself().collate, functools.partial(collate_up_to, 100), lambda samples: collate_slowly(samples)[:, :4]],
    ids=["bound method", "partial", "lambda"],
)
def test_collate_functions_of_any_type(collate_fn):
    dataset = getattr(collate_fn, "__self__", None) or Map()
    check_slow_part("collate", dataset, collate_fn=collate_fn)


# --- loaders -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slow", "kind"), [("load", NamedLoader), ("augment", ScaledLoader)], ids=str)
def test_subclasses_of_the_loader(kind, slow):
    check_slow_part_of(slow, kind(Map(slow), name="train"))


@pytest.mark.parametrize(("slow", "dataset"), [("load", Map), ("augment", Stream)])
def test_the_stateful_loader(slow, dataset):
    loader = StatefulDataLoader(dataset(slow), BATCH_SIZE, num_workers=1)
    check_slow_part_of(slow, loader)


class SlowState(Map):
    """A dataset whose state takes long to save."""

    def state_dict(self):
        rest(True, BATCH_SIZE)
        return {}

    def load_state_dict(self, state):
        pass


def test_the_snapshots_of_a_stateful_loader_are_handed_over():
    check_slow_part_of("handoff", StatefulDataLoader(SlowState(), BATCH_SIZE, num_workers=1))


def test_a_stateful_loader_that_resumes_stays_where_it_was():
    first = StatefulDataLoader(Map(), BATCH_SIZE, num_workers=0, sampler=range(20))
    batches = iter(first)
    next(batches)
    loader = StatefulDataLoader(Map("load"), BATCH_SIZE, num_workers=0, sampler=range(20))
    loader.load_state_dict(first.state_dict())
    loader.state_dict()  # makes its first iterator at once
    check_slow_part_of("load", loader)
    assert len(list(loader)) == 20 // BATCH_SIZE - 1


def test_a_loader_that_keeps_its_iterator():
    loader = RepeatingLoader(Map("augment", length=60), batch_size=BATCH_SIZE, num_workers=1)
    check_slow_part_of("augment", loader)
    assert next(iter(loader))[:, 0].tolist() == [1.0, 2.0]  # its own workers went on waiting
    iterator, loader.iterator = loader.iterator, None
    iterator._shutdown_workers()
