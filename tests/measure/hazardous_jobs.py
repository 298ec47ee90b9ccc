"""Jobs whose code breaks recordings, each in its own way."""

import time

import numpy as np
import torch

import bottleneck
from tests.support.datasets import Photos

WORK_S = 0.001


class Mixing(Photos):
    """What follows the augmentation combines its output with what was loaded: both have the length of the item."""

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
        return super().augment(image)


class MarkedMixing(Mixing):
    """The same with a marked stage."""

    def augment(self, image):
        return self.flip(image)

    @bottleneck.stage("flip")
    def flip(self, image):
        time.sleep(WORK_S)
        return image + 0.5


class Erasing(Photos):
    """Erases in place, once in a while: in a tensor, or with a key that is gone then."""

    def __init__(self, kind, one_in=10):
        self.kind, self.one_in, self.calls = kind, one_in, 0

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
