"""Datasets with one function that takes nearly all the time: by computing, or by waiting."""

import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from bottleneck.job.marks import stage


def burn(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(200))


def hot_decode(image):
    until = time.perf_counter() + 0.006
    while time.perf_counter() < until:
        sum(range(200))
    return image


def slow_disk(index):
    time.sleep(0.02)
    return torch.full((4,), float(index))


class Augment:
    def __call__(self, image):
        return hot_decode(image) + 1


class Computing(Dataset):
    def __init__(self):
        self.transform = Augment()

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return self.transform(torch.full((4,), float(index)))


class Waiting(Computing):
    def __init__(self):
        self.transform = torch.nn.Identity()

    def __getitem__(self, index):
        return self.transform(slow_disk(index))


class Marked(Computing):
    @stage("my decode")
    def decode(self, image):
        return hot_decode(image)

    def __getitem__(self, index):
        return self.decode(torch.full((4,), float(index)))


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(10_000):
            yield hot_decode(torch.full((4,), float(index)))


def slow_collate(samples):
    burn(0.02)
    return torch.stack(samples)


class OwnIteration(DataLoader):
    """Its iterator is a generator, so that workers start with the first batch."""

    def __iter__(self):
        yield from super().__iter__()
