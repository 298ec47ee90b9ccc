"""A job as many are first written, with the loader's defaults: for `bottleneck tune job.py:build`."""

import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from bottleneck import Pipeline

NORMALIZE = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


class RemotePictures(Dataset):
    """Pictures in an object store, which takes a few milliseconds to answer: here a sleep stands for it."""

    def __init__(self, transform, length: int = 8192) -> None:
        self.pictures = np.random.default_rng(0).integers(0, 256, (64, 160, 160, 3), dtype=np.uint8)
        self.transform, self.length = transform, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        time.sleep(0.004)
        return self.transform(Image.fromarray(self.pictures[index % 64])), index % 10


def build() -> Pipeline:
    """A classifier that is trained on them."""
    torch.set_num_threads(1)  # without a GPU: leave the other cores to the workers
    preparation = transforms.Compose(
        [
            transforms.RandomResizedCrop(64),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(**NORMALIZE),
        ]
    )
    hidden = [layer for _ in range(16) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 256), *hidden, nn.Linear(256, 10))
    return Pipeline.from_loader(
        DataLoader(RemotePictures(preparation), batch_size=16, shuffle=True, drop_last=True),
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    )
