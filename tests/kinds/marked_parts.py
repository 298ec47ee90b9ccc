"""Datasets with stages that their author marked, one of which is slow; importable by spawned workers."""

import time

import torch
from torch.utils.data import Dataset, IterableDataset

import bottleneck

SLOW_S = 0.005


class Marked(Dataset):
    """Reads and crops in marked methods, with unmarked code between them; any of the three may be slow."""

    def __init__(self, slow):
        self.slow = slow

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        image = self.read(index)
        self.rest("other")
        return self.crop(image), index

    def rest(self, name):
        if self.slow == name:
            time.sleep(SLOW_S)

    @bottleneck.stage("read")
    def read(self, index):
        self.rest("read")
        return torch.full((8,), float(index))

    @bottleneck.stage("crop")
    def crop(self, image):
        self.rest("crop")
        return image[:4] + 1


class WithItems(Marked):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Outside(Marked):
    """The slow part is marked inside another marked part, which is quick alone."""

    def __getitem__(self, index):
        return self.around(index)

    @bottleneck.stage("around")
    def around(self, index):
        return self.crop(self.read(index)), index


class Stream(Marked, IterableDataset):
    def __iter__(self):
        for index in range(1000):
            yield self[index]


class Pad:
    """Collates in two marked steps."""

    def __init__(self, slow):
        self.slow = slow

    def __call__(self, samples):
        images = self.pad([image for image, _ in samples])
        if self.slow == "collate":
            time.sleep(2 * SLOW_S)
        return images, self.count([label for _, label in samples])

    @bottleneck.stage("pad")
    def pad(self, images):
        if self.slow == "pad":
            time.sleep(2 * SLOW_S)
        return torch.stack(images)

    @bottleneck.stage("count")
    def count(self, labels):
        return torch.tensor(labels)


@bottleneck.stage("optimise")
def marked_step(batch):
    time.sleep(0.001)


@bottleneck.stage("unused")
def unused():
    """Marked, and never called."""
