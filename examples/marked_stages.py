"""A dataset that does everything inline, with its stages marked by `@bottleneck.stage`.

    bottleneck diagnose examples/marked_stages.py:build

There is no `transform` here that could be found and cut, so without the marks all of `__getitem__` would be one
stage, `fetch`. With them the report has a row for `read`, `decode` and `augment_pixels`, one for `mix_up` inside
the collate function, and `other` and `collate` for unmarked code. In training the marks do nothing.
"""

import io
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset, default_collate

import bottleneck
from bottleneck.demo import CLASSES, ensure_photographs


@bottleneck.stage("read")
def read(path: Path) -> bytes:
    """The bytes of a file."""
    return path.read_bytes()


@bottleneck.stage("decode")
def decode(data: bytes) -> np.ndarray:
    """Pixels, of shape (height, width, 3)."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


class Photographs(Dataset):
    """Reads, decodes and augments in one place."""

    def __init__(self, folder: Path, size: int) -> None:
        self.files = sorted(folder.glob("*/*.jpg"))
        self.size = size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index):
        path = self.files[index]
        pixels = self.augment_pixels(decode(read(path)))
        return torch.from_numpy(pixels), CLASSES.index(path.parent.name)

    @bottleneck.stage("augment_pixels")
    def augment_pixels(self, pixels: np.ndarray) -> np.ndarray:
        """Gamma and contrast at random, then a random crop; float32 of shape (3, size, size)."""
        bright = (pixels.astype(np.float32) / 255) ** random.uniform(0.8, 1.2)
        bright = (bright - bright.mean()) * random.uniform(0.8, 1.2) + bright.mean()
        # Cropping first would save most of this.
        top = random.randrange(pixels.shape[0] - self.size + 1)
        left = random.randrange(pixels.shape[1] - self.size + 1)
        crop = bright[top : top + self.size, left : left + self.size].clip(0, 1)
        return np.ascontiguousarray(crop.transpose(2, 0, 1))


def collate(samples):
    """Stacks the samples, and mixes pairs of them."""
    images, labels = default_collate(samples)
    return mix_up(images), labels


@bottleneck.stage("mix_up")
def mix_up(images: torch.Tensor) -> torch.Tensor:
    """Each image with a little of its neighbour."""
    return 0.8 * images + 0.2 * images.roll(1, dims=0)


def build(images: int = 300, size: int = 224, batch_size: int = 8, num_workers: int = 2) -> bottleneck.Pipeline:
    """The job: 500x375 photographs, random crops, a small CNN."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=7, stride=4, padding=3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, len(CLASSES)),
    ).to("cuda" if torch.cuda.is_available() else "cpu")
    return bottleneck.Pipeline(
        dataset=Photographs(ensure_photographs(images), size),
        collate_fn=collate,
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        batch_size=batch_size,
        shuffle=True,
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
        drop_last=True,
    )
