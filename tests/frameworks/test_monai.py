"""MONAI: datasets whose transform begins with loading."""

from functools import partial

import numpy as np
import pytest
from monai.data import CacheDataset, Dataset
from monai.transforms import Compose, LoadImaged, MapTransform, RandFlipd, RandomizableTransform, ToTensord

from bottleneck.job.cuts import find_sites
from tests.frameworks.planted import check_cost, check_verdict, slow_down

pytestmark = pytest.mark.integration


@pytest.fixture
def files(tmp_path):
    found = []
    for number in range(24):
        path = tmp_path / f"{number}.npy"
        np.save(path, np.full((8, 8), float(number), np.float32))
        found.append({"image": str(path), "label": number})
    return found


class SlowLoadImaged(LoadImaged):
    def __call__(self, data, reader=None):
        slow_down()
        return super().__call__(data, reader)


class SlowBlur(MapTransform, RandomizableTransform):
    def __init__(self):
        MapTransform.__init__(self, ["image"])
        RandomizableTransform.__init__(self, prob=1.0)

    def __call__(self, data):
        slow_down()
        return {**data, "image": data["image"] + 1}


def load(cls=LoadImaged):
    return cls(keys=["image"], reader="NumpyReader", image_only=True)


def test_the_members_are_cuts_where_one_of_them_loads(files):
    dataset = Dataset(files, Compose([load(), SlowBlur(), ToTensord(["image"])]))
    assert [(site.name, site.stage) for site in find_sites(dataset)] == [
        ("transform.transforms[0]", "load"),
        ("transform.transforms[1]", "augment"),
        ("transform.transforms[2]", "augment"),
    ]


@pytest.mark.parametrize("kind", [Dataset, partial(CacheDataset, progress=False)])
def test_a_slow_transform_after_loading_is_augmentation_and_what_remains_of_a_cache_dataset(files, kind):
    check_cost(kind(files, Compose([load(), SlowBlur(), ToTensord(["image"])])), "augment")


def test_a_slow_first_transform_is_loading(files):
    dataset = Dataset(files, Compose([load(SlowLoadImaged), RandFlipd(["image"]), ToTensord(["image"])]))
    check_verdict(dataset, "load")  # what LoadImaged takes itself is not small beside what was planted


def test_the_transform_of_data_in_memory_is_one_cut():
    data = [{"image": np.ones((8, 8), np.float32), "label": number} for number in range(24)]
    dataset = Dataset(data, Compose([SlowBlur(), ToTensord(["image"])]))
    assert [(site.name, site.stage) for site in find_sites(dataset)] == [("transform", "augment")]
    check_cost(dataset, "augment")


def test_in_the_main_process_the_users_transform_stays_as_it_was(files):
    transform = Compose([load(), SlowBlur(), ToTensord(["image"])])
    dataset, before = Dataset(files, transform), transform.transforms
    check_cost(dataset, "augment", num_workers=0)
    assert dataset.transform is transform
    assert transform.transforms is before
    assert [type(part) for part in before] == [LoadImaged, SlowBlur, ToTensord]
