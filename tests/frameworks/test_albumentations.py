"""albumentations: called by the user's own dataset, with keywords."""

import albumentations as A
import numpy as np
import pytest
from torch.utils.data import Dataset

from bottleneck.job import recipes
from bottleneck.job.inspect import write_path
from tests.frameworks.planted import check_cost, slow_down

pytestmark = pytest.mark.integration


class SlowBlur(A.ImageOnlyTransform):
    def __init__(self):
        super().__init__(p=1.0)

    def apply(self, img, **params):
        slow_down()
        return img


class Photos(Dataset):
    """As the documentation of albumentations shows it."""

    def __init__(self, augmentation, slow_to_load=False):
        self.augmentation, self.slow_to_load = augmentation, slow_to_load

    def __len__(self):
        return 64

    def __getitem__(self, index):
        image = self.read_image(index)
        return self.augmentation(image=image)["image"].transpose(2, 0, 1), index

    def read_image(self, index):
        if self.slow_to_load:
            slow_down()
        return np.full((16, 16, 3), index, np.uint8)


def quick():
    return A.Compose([A.HorizontalFlip(p=0.5), A.RandomCrop(8, 8)])


def slow():
    return A.Compose([A.HorizontalFlip(p=0.5), A.OneOf([SlowBlur(), SlowBlur()], p=1.0), A.RandomCrop(8, 8)])


def test_a_slow_transform_is_augmentation():
    check_cost(Photos(slow()), "augment")


def test_slow_reading_is_loading():
    check_cost(Photos(quick(), slow_to_load=True), "load")


def test_in_the_main_process_the_users_transform_stays_as_it_was():
    dataset = Photos(slow())
    before = dataset.augmentation
    check_cost(dataset, "augment", num_workers=0)
    assert dataset.augmentation is before


def test_the_members_of_composed_transforms_are_known():
    members = recipes.members(slow())
    assert [write_path(path) for path in members] == [f"transforms[{n}]" for n in range(3)]
    nested = A.Sequential([A.SomeOf([SlowBlur(), SlowBlur()], n=1)])
    assert [write_path(path) for path in recipes.members(nested.transforms[0])] == ["transforms[0]", "transforms[1]"]
    assert not recipes.members(SlowBlur())
