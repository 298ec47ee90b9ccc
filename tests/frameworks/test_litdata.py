"""litdata: chunks of samples on a local disk."""

import litdata
import pytest
import torch
from litdata.streaming.cache import Cache

from bottleneck.job.cuts import find_sites
from tests.frameworks.planted import BATCH_SIZE, check_cost, check_cost_of_loader, slow_down, slowly

pytestmark = pytest.mark.integration
COUNT = 64


@pytest.fixture(scope="module")
def chunks(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("chunks"))
    cache = Cache(input_dir=folder, chunk_size=16)
    for number in range(COUNT):
        cache[number] = {"pixels": torch.full((12,), float(number)), "label": number}
    cache.done()
    cache.merge()
    return folder


def half(sample):
    return {**sample, "pixels": sample["pixels"] / 2}


def test_a_list_of_transforms_is_cut_one_by_one(chunks):
    dataset = litdata.StreamingDataset(chunks, transform=[half, slowly])
    assert [site.name for site in find_sites(dataset)] == ["transform[0]", "transform[1]"]
    check_cost(dataset, "augment")


def test_a_single_transform_is_cut(chunks):
    check_cost(litdata.StreamingDataset(chunks, transform=slowly), "augment")


class SlowToRead(litdata.StreamingDataset):
    def __getitem__(self, index):
        slow_down()
        return super().__getitem__(index)


def test_slow_reading_is_loading(chunks):
    check_cost(SlowToRead(chunks, transform=half), "load")


def test_a_streaming_data_loader_is_taken_as_the_plain_one_that_it_is(chunks):
    loader = litdata.StreamingDataLoader(
        litdata.StreamingDataset(chunks, transform=slowly), batch_size=BATCH_SIZE, num_workers=1
    )
    check_cost_of_loader(loader, "augment")
    assert len(list(loader)) == COUNT / BATCH_SIZE  # and it still works
