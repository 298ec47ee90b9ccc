"""Whatever a DataLoader can be told: the slow part is named."""

import functools

import numpy as np
import pytest
import torch
from slow_parts import (
    BATCH_SIZE,
    COLLATE_S,
    Map,
    NamedBySplit,
    NamedLoader,
    Pieces,
    Rows,
    ScaledLoader,
    SlowCollate,
    Stream,
    check_verdict,
    collate_of,
    collate_slowly,
    diagnose,
    diagnose_loader,
    name_folder,
)
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Sampler, default_collate
from torchdata.stateful_dataloader import StatefulDataLoader

pytestmark = pytest.mark.integration


class Uneven(Sampler):
    """Batches of their own sizes, as tuples or lists."""

    def __init__(self, kind=list):
        self.kind = kind

    def __iter__(self):
        for first in range(0, 60_000, 6):
            yield self.kind(range(first, first + 4))
            yield self.kind(range(first + 4, first + 6))

    def __len__(self):
        return 20_000


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


@pytest.mark.parametrize(("slow", "kind"), [("load", list), ("augment", tuple), ("collate", list)])
def test_batches_of_uneven_sizes(slow, kind):
    check_verdict(diagnose(Map(slow), batch_sampler=Uneven(kind), collate_fn=collate_of(slow)), slow)


@pytest.mark.parametrize("slow", ["load", "augment"])
def test_no_batching_and_a_list_of_indices_for_each_item(slow):
    sampler = BatchSampler(RandomSampler(range(10_000)), BATCH_SIZE, drop_last=False)
    check_verdict(diagnose(Pieces(slow), batch_size=None, sampler=sampler), slow)


@pytest.mark.parametrize(
    ("slow", "kind"), [("load", np.int64), ("augment", torch.tensor), ("augment", with_size)], ids=str
)
def test_indices_of_any_type(slow, kind):
    check_verdict(diagnose(Rows(slow), sampler=EveryThird(kind)), slow)


@pytest.mark.parametrize("slow", ["load", "augment"])
def test_the_share_of_a_distributed_sampler(slow):
    dataset = Map(slow)
    sampler = DistributedSampler(dataset, num_replicas=4, rank=1, drop_last=True)
    check_verdict(diagnose(dataset, sampler=sampler, drop_last=True), slow)
    assert sampler.epoch == 0


def test_a_generator_of_the_users_is_left_as_it_was():
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    check_verdict(diagnose(Map("load"), shuffle=True, generator=generator), "load")
    assert torch.equal(generator.get_state(), before)


# --- workers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", ["load", "augment"])
def test_a_worker_init_fn_that_writes_to_its_dataset(slow):
    check_verdict(diagnose(NamedBySplit(slow), worker_init_fn=name_folder), slow)


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
    check_verdict(diagnose(Map(slow), collate_fn=collate_of(slow), **options), slow)


# --- collate functions -------------------------------------------------------------------------------------


class CollatesItself(Map):
    def collate(self, samples):
        return collate_slowly(samples)


def collate_for(seconds, samples):
    return collate_slowly(samples)


@pytest.mark.parametrize(
    "collate_fn",
    [CollatesItself().collate, functools.partial(collate_for, COLLATE_S), lambda samples: collate_slowly(samples)],
    ids=["bound method", "partial", "lambda"],
)
def test_collate_functions_of_any_type(collate_fn):
    dataset = getattr(collate_fn, "__self__", None) or Map()
    check_verdict(diagnose(dataset, collate_fn=collate_fn), "collate")


# --- loaders -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NamedLoader, ScaledLoader])
@pytest.mark.parametrize("slow", ["load", "augment"])
def test_subclasses_of_the_loader(kind, slow):
    check_verdict(diagnose_loader(kind(Map(slow), name="train")), slow)


@pytest.mark.parametrize(
    ("slow", "dataset"), [("load", Map), ("augment", Map), ("augment", Stream), ("collate", Map)]
)
def test_the_stateful_loader(slow, dataset):
    loader = StatefulDataLoader(dataset(slow), BATCH_SIZE, num_workers=1, collate_fn=collate_of(slow))
    check_verdict(diagnose_loader(loader), slow)
