"""timm: its datasets over files and its transforms."""

import pytest
import timm.data
import torch
from PIL import Image
from timm.data import AugMixDataset, IterableImageDataset, create_transform
from timm.data.auto_augment import rand_augment_transform
from timm.data.loader import PrefetchLoader, fast_collate
from torch.utils.data import DataLoader
from torchvision import transforms

from bottleneck.job import recipes
from bottleneck.job.inspect import write_path
from tests.frameworks.planted import (
    BATCH_SIZE,
    check_cost,
    check_cost_of_loader,
    check_verdict,
    slow_down,
    slowly,
    write_photographs,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def photographs(tmp_path):
    return str(write_photographs(tmp_path))


def with_slow_part(transform):
    transform.transforms.insert(1, transforms.Lambda(slowly))
    return transform


def own_transform(**options):
    return create_transform(8, **{"is_training": True, "color_jitter": None, **options})


def test_a_slow_transform_is_augmentation(photographs):
    dataset = timm.data.ImageDataset(photographs, transform=with_slow_part(own_transform()))
    check_cost(dataset, "augment")


def test_a_slow_reader_is_loading(photographs):
    dataset = timm.data.ImageDataset(photographs, transform=own_transform())

    class SlowReader(type(dataset.reader)):
        def __getitem__(self, index):
            slow_down()
            return super().__getitem__(index)

    dataset.reader.__class__ = SlowReader
    check_cost(dataset, "load")


def test_augmix_is_augmentation(photographs):
    dataset = AugMixDataset(timm.data.ImageDataset(photographs), num_splits=2)
    parts = own_transform(separate=True, auto_augment="augmix-m5-w4-d2")
    dataset.transform = (parts[0], transforms.Compose([parts[1], transforms.Lambda(slowly)]), parts[2])
    check_verdict(dataset, "augment", collate_fn=first_of_each)


def first_of_each(samples):
    return [images[0] for images, _ in samples]


class Stream(IterableImageDataset):
    """Iterates as its parent does, over samples in memory; the parent wants a dataset with a name."""

    def __init__(self, samples, transform):
        self.reader, self.transform, self.target_transform = samples, transform, None


def test_a_stream_of_photographs_has_its_transform_cut():
    samples = [(Image.new("RGB", (16, 16), (number, number, number)), number) for number in range(24)]
    check_cost(Stream(samples, with_slow_part(own_transform())), "augment")


def test_the_operations_of_random_augmentation_are_its_members():
    transform = rand_augment_transform("rand-m9-n2", {})
    members = [write_path(path) for path in recipes.members(transform)]
    assert members == [f"ops[{number}]" for number in range(len(transform.ops))]


def test_what_the_prefetcher_does_on_the_device_is_the_copy(photographs):
    dataset = timm.data.ImageDataset(photographs, transform=create_transform(8, use_prefetcher=True))
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=1, collate_fn=fast_collate)
    prefetcher = PrefetchLoader(loader, device=torch.device("cpu"))
    prefetcher.random_erasing = slowly_for_a_batch
    check_cost_of_loader(prefetcher, "copy")


def slowly_for_a_batch(images):
    assert images.dtype == torch.float32
    slow_down(len(images))
    return images
