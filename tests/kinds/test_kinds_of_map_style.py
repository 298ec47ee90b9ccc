"""Map-style datasets of every shape: the slow part is named."""

import pytest
import torch
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset

from tests.kinds.slow_parts import (
    Archive,
    Columns,
    Large,
    Locked,
    Map,
    Opaque,
    Pipelined,
    Unpicklable,
    WithItems,
    check_both_parts,
    check_slow_part,
    collate_of,
)

pytestmark = pytest.mark.integration


def test_items_fetched_a_batch_at_a_time():
    check_both_parts(WithItems("load"))


def test_a_subset_of_a_dataset_that_transforms_whole_batches():
    check_both_parts(Subset(Columns("load"), range(5, 90_000)))


def test_a_list_of_transforms_that_begins_with_loading():
    check_both_parts(Pipelined("load"))


def test_a_concatenation():
    check_slow_part("load", ConcatDataset([Map("load", 50), Map("load", 500)]), shuffle=True)


def test_a_stack():
    check_slow_part("augment", StackDataset(Map("augment"), Map()), shuffle=True)


def test_a_dataset_with_nothing_to_cut():
    check_slow_part("fetch", Opaque())


@pytest.mark.parametrize(
    "dataset", [[torch.zeros(8)] * 100, TensorDataset(torch.zeros(100, 8))], ids=["list", "TensorDataset"]
)
def test_plain_containers(dataset):
    check_slow_part("collate", dataset, collate_fn=collate_of("collate"))


# --- what datasets hold ------------------------------------------------------------------------------------


@pytest.fixture
def archive_path(tmp_path):
    path = tmp_path / "archive"
    path.write_bytes(bytes(800))
    return path


@pytest.mark.parametrize(("slow", "num_workers"), [("load", 1), ("augment", 0)])
def test_a_handle_that_is_opened_in_the_worker(archive_path, slow, num_workers):
    dataset = Archive(slow, archive_path)
    check_slow_part(slow, dataset, num_workers=num_workers)
    assert dataset.file is None


def test_a_lock():
    check_slow_part("load", Locked("load"))


def test_a_dataset_that_cannot_be_pickled():
    check_slow_part("augment", Unpicklable("augment"))


@pytest.mark.parametrize(("slow", "method"), [("load", "spawn"), ("augment", "forkserver")])
def test_a_large_dataset_in_workers_that_do_not_fork(slow, method):
    check_slow_part(slow, Large(slow), multiprocessing_context=method, budget=9.0)
