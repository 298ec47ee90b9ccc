"""Iterable datasets: the slow part is named, however items come and end."""

import pytest
from torch.utils.data import ChainDataset

from tests.kinds.slow_parts import (
    Batches,
    Shards,
    Shuffled,
    Steps,
    Stream,
    check_both_parts,
    check_slow_part,
    collate_of,
    give_shard,
)

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("slow", ["augment", "collate"])
def test_a_stream_that_is_shared_out_by_get_worker_info(slow):
    check_slow_part(slow, Stream(slow, 100_000), num_workers=2, collate_fn=collate_of(slow))


def test_a_stream_without_end():
    check_slow_part("load", Stream("load"))


def test_a_stream_with_fewer_items_than_one_block_needs():
    check_both_parts(Stream("load", 6))


def test_a_stream_of_which_one_worker_gets_nothing():
    check_slow_part("augment", Stream("augment", 100_000, share_for=1), num_workers=2)


def test_a_stream_whose_share_is_set_by_the_worker_init_fn():
    check_slow_part("augment", Shards("augment"), worker_init_fn=give_shard)


def test_a_stream_of_whole_batches():
    check_slow_part("augment", Batches("augment"), batch_size=None)


def test_an_iterator_class_with_a_next_of_its_own():
    check_slow_part("augment", Steps("augment", 50))


def test_a_stream_with_a_shuffle_buffer():
    check_slow_part("augment", Shuffled("augment"))


def test_a_chain_of_streams():
    check_slow_part("load", ChainDataset([Stream("load", 10), Stream("load", 20)]))


def test_a_stream_without_workers():
    check_slow_part("augment", Stream("augment"), num_workers=0)
