"""Cuts of a dataset and members of a transform are found without calling or changing anything."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, IterDataPipe, Subset
from torchvision import datasets, transforms
from torchvision import transforms as v1
from torchvision.datasets.vision import StandardTransform
from torchvision.transforms import v2

from bottleneck.errors import PipelineError
from bottleneck.job.cuts import find_members, find_sites
from bottleneck.job.inspect import resolve


def by_name(sites):
    return {site.name: site.stage for site in sites}


@pytest.fixture
def photographs(tmp_path):
    folder = tmp_path / "cat"
    folder.mkdir()
    for number in range(3):
        Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(folder / f"{number}.png")
    return tmp_path


class Photos(Dataset):
    """Loads in a method, augments with an attribute."""

    def __init__(self, augment=None):
        self.paths = ["a", "b"]
        self.augment = augment or transforms.Compose([])
        self.label_encoder = str.upper
        self.cache = {}

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.augment(self._read_image(self.paths[index]))

    def _read_image(self, path):
        return self.decode(path)

    @staticmethod
    def decode(path):
        return torch.zeros(3)

    def never_used(self):
        raise AssertionError


def test_image_folder_has_a_loader_and_a_transform(photographs):
    dataset = datasets.ImageFolder(str(photographs), transforms.ToTensor(), target_transform=abs)
    found = by_name(find_sites(dataset))
    assert found["loader"] == "load"
    assert found["transform"] == "augment"
    assert found["target_transform"] == "augment"


def test_methods_that_the_item_method_calls_are_found_also_indirectly():
    found = by_name(find_sites(Photos()))
    assert found["augment"] == "augment"
    assert found["_read_image"] == "load"
    assert found["decode"] == "load"
    assert found["label_encoder"] is None
    assert "never_used" not in found
    assert "cache" not in found
    assert "paths" not in found


def test_nested_datasets_are_searched_and_their_paths_resolve():
    inner = Photos()
    dataset = Subset(ConcatDataset([Subset(inner, [0]), Photos()]), [0, 1])
    sites = find_sites(dataset)
    names = {site.name for site in sites}
    assert {"dataset.datasets[0].dataset.augment", "dataset.datasets[1]._read_image"} <= names
    for site in sites:
        assert callable(getattr(resolve(dataset, site.path), site.attribute))
    first = next(site for site in sites if site.name == "dataset.datasets[0].dataset.augment")
    assert resolve(dataset, first.path) is inner


def test_datasets_that_contain_each_other_end_the_search():
    dataset = Photos()
    dataset.parent = Subset(dataset, [0])
    assert by_name(find_sites(dataset))["augment"] == "augment"


def test_nothing_is_called_or_changed():
    def refuse(*_):
        raise AssertionError("called")

    dataset = Photos(refuse)
    before = copy.copy(dataset.__dict__)
    find_sites(dataset)
    assert dataset.__dict__ == before


@pytest.mark.parametrize("name", ["augment", "dataset.datasets[0].augment", "dataset.datasets.0.augment"])
def test_the_path_that_the_user_gives_comes_first(name):
    dataset = Photos() if name == "augment" else Subset(ConcatDataset([Photos()]), [0])
    sites = find_sites(dataset, name)
    assert sites[0].chosen
    assert sites[0].stage == "augment"
    assert callable(getattr(resolve(dataset, sites[0].path), sites[0].attribute))
    assert sum(site.attribute == "augment" for site in sites) == 1  # not found by guessing once more


@pytest.mark.parametrize(
    "name", ["tranform", "dataset.transform", "paths", "datasets[3].transform", "paths[0]", "", ".", "augment.", "[0]"]
)
def test_a_path_that_leads_nowhere_is_refused_in_one_sentence(name):
    if name == "augment.":
        assert find_sites(Photos(), name)[0].name == "augment"  # a slip of the pen does no harm
        return
    with pytest.raises(PipelineError) as caught:
        find_sites(Photos(), name)
    assert repr(name) in caught.value.message
    assert "Photos" in caught.value.message
    assert "augment=" in caught.value.remedy
    assert "\n" not in str(caught.value)


# --- several callables in one attribute ---------------------------------------------------------------------


class LoadImageFromFile:
    def __call__(self, record):
        return record


class Flip(LoadImageFromFile):
    pass


def test_a_composed_transform_is_cut_member_by_member_where_one_of_them_loads():
    class Composed(Dataset):
        def __init__(self, *members):
            self.transform = transforms.Compose(members)

    assert by_name(find_sites(Composed(LoadImageFromFile(), Flip()))) == {
        "transform.transforms[0]": "load",
        "transform.transforms[1]": "augment",
    }
    assert by_name(find_sites(Composed(Flip(), Flip()))) == {"transform": "augment"}


def test_neither_decorators_nor_derived_classes_hide_what_an_item_method_calls():
    class Decorated(Dataset):
        @torch.no_grad()
        def __getitem__(self, index):
            return self.augment(index)

        def augment(self, sample):
            return sample

    class Derived(Decorated):
        def __getitem__(self, index):
            return super().__getitem__(index), index

    class Piped(IterDataPipe):  # whose methods PyTorch wraps
        def __iter__(self):
            yield self.augment(0)

        augment = Decorated.augment

    assert [site.name for site in find_sites(Decorated())] == ["augment"]
    assert [site.name for site in find_sites(Derived())] == ["augment"]
    assert [site.name for site in find_sites(Piped())] == ["augment"]


def double(image):
    return image * 2


class TwoViews:
    """An object with two compositions, as contrastive learning has it."""

    def __init__(self):
        self.first = v1.Compose([v1.CenterCrop(2)])
        self.second = v1.Compose([double])
        self.size = 2

    def __call__(self, image):
        return self.first(image), self.second(image)


class Listed:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.Sequential(nn.Flatten(), nn.ReLU())

    def forward(self, image):
        return self.steps(image)


def names(transform):
    return [name for _, name in find_members(transform)]


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (v1.Compose([v1.ToTensor(), v1.Normalize(0.5, 0.5)]), ["ToTensor", "Normalize"]),
        (v2.Compose([v2.ToImage(), v2.Compose([v2.Resize(4)])]), ["ToImage", "Resize"]),
        (v2.Compose((v2.ToImage(), v2.Resize(4))), ["ToImage", "Resize"]),
        (v1.RandomApply([v1.ColorJitter()]), ["ColorJitter"]),
        (v2.RandomApply(nn.ModuleList([v2.ColorJitter()])), ["ColorJitter"]),
        (v1.RandomChoice([v1.RandomGrayscale(), v1.ColorJitter()]), ["RandomGrayscale", "ColorJitter"]),
        (v2.RandomOrder([v2.RandomGrayscale(), v2.ColorJitter()]), ["RandomGrayscale", "ColorJitter"]),
        (nn.Sequential(nn.Flatten(), nn.Sequential(nn.ReLU())), ["Flatten", "ReLU"]),
        (v1.Compose([double, partial(double), lambda image: image]), ["double", "double", "<lambda>"]),
        (Listed([double, Listed([v1.CenterCrop(2)])]), ["double", "CenterCrop"]),
        (StandardTransform(v1.Compose([v1.CenterCrop(2)]), double), ["CenterCrop", "double"]),
        (TwoViews(), ["CenterCrop", "double"]),
        (v1.Compose([TwoViews(), double]), ["CenterCrop", "double", "TwoViews", "double"]),
        (Module(), ["Flatten", "ReLU"]),
    ],
)
def test_members_are_found(transform, expected):
    found = find_members(transform)
    assert [name for _, name in found] == expected
    assert all(callable(resolve(transform, path)) for path, _ in found)
