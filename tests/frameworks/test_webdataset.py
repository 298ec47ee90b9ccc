"""WebDataset: samples streamed from tar shards, decoded and mapped in a list of stages."""

import io

import numpy as np
import pytest
import webdataset
from PIL import Image

import bottleneck
from bottleneck.job.cuts import find_sites
from tests.frameworks.planted import (
    BATCH_SIZE,
    check_cost,
    check_cost_of_loader,
    check_is_one_stage,
    slow_down,
    slowly,
    train_step,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    picture = io.BytesIO()
    Image.fromarray(np.full((16, 16, 3), 7, np.uint8)).save(picture, "PNG")
    for shard in range(2):
        with webdataset.TarWriter(str(folder / f"{shard}.tar")) as writer:
            for number in range(32):
                writer.write({"__key__": f"{shard}-{number:03}", "png": picture.getvalue(), "cls": number})
    return [str(path) for path in sorted(folder.iterdir())]


def to_array(image):
    return np.asarray(image, np.float32)


def slow_array(image):
    slow_down()
    return to_array(image)


def slow_decoder(key, data):
    if key.endswith("png"):
        slow_down()
    return None  # the next handler decodes


def stream(shards):
    return webdataset.WebDataset(shards, shardshuffle=False)


def test_a_slow_function_of_map_tuple_is_augmentation(shards):
    dataset = stream(shards).decode("pil").to_tuple("png", "cls").map_tuple(slow_array, None)
    assert {site.stage for site in find_sites(dataset)} == {"load", None}
    check_cost(dataset, "augment")


def test_a_function_of_map_dict_is_a_site(shards):
    dataset = stream(shards).decode("pil").map_dict(png=slow_array).to_tuple("png", "cls")
    (name,) = (site.name for site in find_sites(dataset) if site.stage is None)
    assert name.endswith(".kw['png']")


def test_a_slow_function_of_map_is_augmentation(shards):
    dataset = stream(shards).decode("rgb").map(slowly).to_tuple("png", "cls")
    check_cost(dataset, "augment")


def test_a_slow_decoder_is_loading(shards):
    dataset = stream(shards).decode(slow_decoder, "pil").to_tuple("png", "cls").map_tuple(to_array, None)
    check_cost(dataset, "load")


def test_a_slow_stage_of_ones_own_is_one_stage(shards):
    def slow_stage(samples):
        for sample in samples:
            slow_down()
            yield sample

    dataset = stream(shards).decode("rgb").to_tuple("png", "cls").compose(slow_stage)
    check_is_one_stage(dataset)


def test_a_marked_function_in_a_pipeline_carries_its_name(shards):
    @bottleneck.stage("sharpen")
    def sharpen(image):
        return slow_array(image)

    dataset = stream(shards).decode("pil").to_tuple("png", "cls").map_tuple(sharpen, None)
    check_cost(dataset, "sharpen")


def test_in_the_main_process_the_users_pipeline_stays_as_it_was(shards):
    dataset = stream(shards).decode("pil").to_tuple("png", "cls").map_tuple(slow_array, None)
    before = [(stage, dict(vars(stage))) for stage in dataset.pipeline]
    check_cost(dataset, "augment", num_workers=0)
    assert [(stage, dict(vars(stage))) for stage in dataset.pipeline] == before


def test_a_web_loader_whose_dataset_makes_the_batches_is_taken(shards):
    dataset = stream(shards).shuffle(8).decode("pil").to_tuple("png", "cls").map_tuple(slow_array, None)
    loader = webdataset.WebLoader(dataset.batched(BATCH_SIZE), batch_size=None, num_workers=1)
    check_cost_of_loader(loader, "augment")


def test_a_pipeline_of_stages_has_the_same_cuts(shards):
    dataset = webdataset.DataPipeline(
        webdataset.SimpleShardList(shards),
        webdataset.tarfile_to_samples(),
        webdataset.decode("rgb"),
        webdataset.to_tuple("png", "cls"),
        webdataset.map_tuple(slow_array, int),
    )
    check_cost(dataset, "augment")


def test_a_web_loader_stands_for_its_data_loader(shards):
    dataset = stream(shards).decode("pil").to_tuple("png", "cls").map_tuple(slow_array, None)
    loader = webdataset.WebLoader(dataset, batch_size=BATCH_SIZE, num_workers=1)
    pipeline = bottleneck.Pipeline.from_loader(loader, train_step=train_step, device="cpu")
    assert pipeline.dataset is dataset
    assert pipeline.loader_args["num_workers"] == 1
