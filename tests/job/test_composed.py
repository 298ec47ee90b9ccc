"""The single transforms inside composed ones are found, whoever composed them and however deep they lie."""

from functools import partial

import pytest
import torch
from torch import nn
from torchvision import transforms as v1
from torchvision.datasets.vision import StandardTransform
from torchvision.transforms import v2

from bottleneck.job.cuts import find_members
from bottleneck.job.inspect import resolve


def double(image):
    return image * 2


class TwoViews:
    """What contrastive learning does: an object of the user's that holds two compositions."""

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
    return [member.name for member in find_members(transform)]


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
    assert [member.name for member in found] == expected
    assert all(callable(resolve(transform, member.path)) for member in found)


@pytest.mark.parametrize(
    "transform",
    [
        double,
        v1.ColorJitter(),
        partial(double),
        Listed([]),
        Listed("ab"),
        Listed([1, 2]),
        nn.Linear(2, 2),
        len,
        torch.relu,
    ],
    ids=["function", "transform", "partial", "empty", "text", "numbers", "module", "builtin", "of torch"],
)
def test_what_is_not_composed_has_no_members(transform):
    assert find_members(transform) == ()


def test_compositions_that_hold_each_other_end():
    first, second = Listed([]), Listed([double])
    first.transforms = [second]
    second.transforms.append(first)
    assert "double" in names(first)


def test_a_composition_that_is_there_twice_is_found_once():
    inner = Listed([double])
    seen = set()
    assert len(find_members(Listed([inner]), seen)) == 1
    assert find_members(inner, seen) == ()


def test_there_is_an_end_to_how_many_are_found():
    assert len(find_members(Listed([double] * 10_000))) == 200


def test_a_list_that_refuses_to_be_read_is_not_looked_into():
    class Refusing(list):
        def __iter__(self):
            raise RuntimeError("not yet")

    with pytest.raises(RuntimeError):
        list(Refusing([1]))
    assert find_members(Listed(Refusing([double]))) == ()
