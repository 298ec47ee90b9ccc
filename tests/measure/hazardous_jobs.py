"""Jobs whose code does what a recording does not bear, each in a way of its own."""

import time

import numpy as np
import torch
from torch.utils.data import Dataset

import bottleneck

WORK_S = 0.002


class Mixing(Dataset):
    """What follows the augmentation combines its output with what was loaded: both have the length of the item."""

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        image = self.load(index)
        mask = torch.ones(len(image))
        augmented = self.augment(image)
        time.sleep(WORK_S)
        return (augmented * mask).sum(), index

    def load(self, index):
        return torch.full((8 + index % 7,), float(index))

    def augment(self, image):
        time.sleep(WORK_S)
        return image + 0.5


class MarkedMixing(Mixing):
    """The same with a marked stage."""

    def augment(self, image):
        return self.flip(image)

    @bottleneck.stage("flip")
    def flip(self, image):
        time.sleep(WORK_S)
        return image + 0.5


class Erasing(Dataset):
    """Erases in place, once in a while: in a tensor, or with a key that is gone then."""

    def __init__(self, kind, one_in=10):
        self.kind, self.one_in, self.calls = kind, one_in, 0

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return self.augment(self.load(index)), index

    def load(self, index):
        if self.kind == "key":
            return {"image": torch.ones(8), "boxes": torch.ones(2)}
        return torch.ones(8) if self.kind == "tensor" else np.ones(8)

    def augment(self, sample):
        time.sleep(WORK_S)
        self.calls += 1
        erases = self.calls > CHECKED_CALLS and self.calls % self.one_in == 0
        if self.kind == "key":
            return sample["image"] + (sample.pop("boxes") if erases else sample["boxes"]).sum()
        if erases:
            sample[:4] = 0
        return sample + 1


CHECKED_CALLS = 150
"""Calls of the augmentation in which a job is checked and recorded."""
