"""Hugging Face datasets: map-style with their own transform, and streams with `map`."""

import datasets
import numpy as np
import pytest
import scipy.sparse  # noqa: F401 - `datasets` imports it to hash a generator, and it changes the warnings filters
import torch
from torch.utils.data import Subset

from bottleneck.job.cuts import find_sites
from tests.frameworks.planted import check_cost, check_is_one_stage, slow_down

pytestmark = pytest.mark.integration

COUNT = 64


def make_records():
    return datasets.Dataset.from_dict({"pixels": np.ones((COUNT, 12)).tolist(), "label": list(range(COUNT))})


def slow_transform(batch):
    slow_down(len(batch["label"]))
    return {"pixels": [torch.tensor(row) for row in batch["pixels"]], "label": batch["label"]}


def quick_transform(batch):
    return {"pixels": [torch.tensor(row) for row in batch["pixels"]], "label": batch["label"]}


def slow_example(example):
    slow_down()
    return {"pixels": np.asarray(example["pixels"]) + 1, "label": example["label"]}


@pytest.mark.parametrize("method", ["set_transform", "with_transform"])
def test_the_transform_of_a_map_style_dataset_is_found(method):
    records = make_records()
    given = getattr(records, method)(slow_transform) or records
    assert given.format["type"] == "custom"
    assert [site.name for site in find_sites(given)] == ["_format_kwargs['transform']"]
    if method == "set_transform":
        check_cost(given, "augment")


def test_a_dataset_of_records_inside_another_is_found_too():
    records = Subset(make_records().with_transform(slow_transform), range(COUNT))
    assert [site.name for site in find_sites(records)] == ["dataset._format_kwargs['transform']"]
    check_cost(records, "augment")


def test_in_the_main_process_the_users_dataset_stays_as_it_was():
    records = make_records().with_transform(slow_transform)
    check_cost(records, "augment", num_workers=0)
    assert records._format_kwargs == {"transform": slow_transform}


class SlowTable(datasets.Dataset):
    """Reads slowly."""

    def __getitems__(self, keys):
        slow_down(len(keys))
        return super().__getitems__(keys)


def slow_to_read(records):
    return SlowTable(records.data, info=records.info, fingerprint="slow")


def test_slow_reading_is_loading():
    check_cost(slow_to_read(make_records()).with_transform(quick_transform), "load")


def test_records_without_a_transform_are_one_stage():
    check_is_one_stage(slow_to_read(make_records()).with_format("torch"))


def test_the_function_of_a_streams_map_is_found():
    stream = make_records().to_iterable_dataset(num_shards=2).map(slow_example)
    assert [site.name for site in find_sites(stream)] == ["_ex_iterable.function"]
    check_cost(stream, "augment")


def test_a_stream_may_be_shuffled_before_its_map_and_formatted_after_it():
    stream = make_records().to_iterable_dataset(num_shards=2).shuffle(seed=0, buffer_size=8)
    check_cost(stream.map(slow_example).with_format("torch"), "augment")


def test_a_stream_whose_shuffling_maps_in_threads_is_one_stage():
    stream = make_records().to_iterable_dataset().map(slow_example).shuffle(seed=0, buffer_size=8)
    diagnosis = check_is_one_stage(stream.with_format("torch"))
    assert any("thread" in warning.message for warning in diagnosis.warnings)
    assert not any("restored" in warning.message for warning in diagnosis.warnings)


def test_a_stream_that_is_slow_to_read_is_one_stage():
    def generate():
        for number in range(COUNT):
            slow_down()
            yield {"pixels": [1.0] * 12, "label": number}

    check_is_one_stage(datasets.IterableDataset.from_generator(generate).with_format("torch"))
