"""A small dataset to be cut, and what cuts and records it."""

import torch
from torch.utils.data import Dataset

from bottleneck.job.cuts import CutSite
from bottleneck.loader.calls import Tape
from bottleneck.loader.cut import install


class Photos(Dataset):
    """Load, augment, then a finishing step; counts what really runs."""

    def __init__(self):
        self.loaded = []
        self.augmented = 0

    def __len__(self):
        return 4

    def __getitem__(self, index):
        image = self.load_image(index)
        image = self.augment(image)
        return image * 2, index

    def load_image(self, index):
        self.loaded.append(index)
        return torch.full((3,), float(index))

    def augment(self, image):
        self.augmented += 1
        return image + 0.5


LOAD = CutSite((), "load_image", "load")
AUGMENT = CutSite((), "augment", "augment")


def cut_photos(dataset=None, sites=(LOAD, AUGMENT), **options):
    dataset, tape = dataset or Photos(), Tape(**options)
    install(dataset, sites, tape)
    return dataset, tape


def record(dataset, tape, index, **options):
    with tape.recording(**options) as calls:
        value = dataset[index]
    return value, calls
