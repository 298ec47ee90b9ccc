"""Datasets and collate functions with stages that their author marked; each counts what really runs."""

import torch
from torch.utils.data import Dataset

import bottleneck

RAN = {}
"""Name of a stage -> how often it really ran in this process."""


def ran(name):
    RAN[name] = RAN.get(name, 0) + 1


@bottleneck.stage("decode")
def decode(index):
    ran("decode")
    return torch.full((4,), float(index))


@bottleneck.stage("pad")
def pad(parts):
    ran("pad")
    return torch.stack(parts)


def collate(samples):
    ran("collate")
    return pad([image for image, _ in samples]), torch.tensor([label for _, label in samples])


def collate_in_place(samples):
    """What the stage gives is changed in place."""
    return pad([image for image, _ in samples]).mul_(3), torch.tensor([label for _, label in samples])


@bottleneck.stage("check")
def check(images):
    ran("check")
    return images


def collate_checked(samples):
    """The stage hands on what it is given."""
    return check(torch.stack([image for image, _ in samples])), torch.tensor([label for _, label in samples])


class CollateNested:
    """What the inner stage gives is in the batch, and nothing that the outer one gives."""

    def __call__(self, samples):
        self.measure(torch.stack([image for image, _ in samples]))
        return self.doubled, torch.tensor([label for _, label in samples])

    @bottleneck.stage("measure")
    def measure(self, images):
        return self.double(images).sum()

    @bottleneck.stage("double")
    def double(self, images):
        self.doubled = images * 2
        return self.doubled


class Marked(Dataset):
    """Decode, then two views, with unmarked code in between."""

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        ran("other")
        image = decode(index)
        views = [self.normalize(self.crop(image, left)) for left in (0, 2)]
        return torch.stack(views), index

    @bottleneck.stage("crop")
    def crop(self, image, left):
        ran("crop")
        return image[left : left + 2].clone()

    @bottleneck.stage("normalize")
    def normalize(self, image):
        ran("normalize")
        return image - 0.5


class InPlace(Marked):
    """Later code changes what an earlier stage gave it."""

    def __getitem__(self, index):
        image = decode(index)
        return image.mul_(3), index


class Disordered(Marked):
    def __getitem__(self, index):
        image = decode(index)
        if index % 2:
            return self.normalize(self.crop(image, 0)), index
        return self.crop(self.normalize(image), 0), index


class Sometimes(Marked):
    """A stage that only one item in two needs."""

    def __getitem__(self, index):
        image = decode(index)
        return (self.normalize(image) if index % 2 else image), index


class Rare(Marked):
    """The first items do not call the stage at all; a found cut is recorded until then."""

    def __init__(self):
        self.transform = lambda image: image + 1

    def __getitem__(self, index):
        image = torch.full((4,), float(index))
        return (decode(index) if index >= 6 else self.transform(image)), index


class Handle:
    """Cannot be copied, as an open file."""

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle a handle")

    def read(self, index):
        return torch.full((4,), float(index))


class Opening(Marked):
    @bottleneck.stage("open")
    def open(self, index):
        return Handle()

    def __getitem__(self, index):
        return self.normalize(self.open(index).read(index)), index
