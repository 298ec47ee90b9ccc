"""One small dataset of each kind; spawned workers can import this module."""

import torch
from torch.utils.data import Dataset, IterableDataset


class Photos(Dataset):
    """Vectors that are loaded, then augmented, with their index."""

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return self.augment(self.load(index)), index

    def load(self, index):
        return torch.full((8,), float(index))

    def augment(self, image):
        return image + 0.5


class Stream(IterableDataset):
    def __init__(self, numbers=range(10)):
        self.numbers = numbers

    def __iter__(self):
        return iter(self.numbers)


class Repeated:
    """A sampler that begins again where another one ends."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from self.sampler
