"""Two cameras whose pictures are augmented in the workers: `camera_augmentation.py [fixed | control]`.

Rebuilt from a public change (lerobot PR #4627), with a quarter of its workers, and its step in proportion. `fixed`
leaves the augmentation to the GPU, a batch at a time. The step of `control` is that of a slower GPU, with which workers
keep up. Without a GPU, step and augmentation on it are waits.
"""

import argparse
import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

FRAMES, SIDE, BATCH, WORKERS, WARM_UP_S = 600, 256, 16, 2, 3.0
CHOSEN = 4
STEP_S, ON_DEVICE_S, SLOW_STEP_S = 0.037, 0.003, 0.4
"""A step, the augmentation of a batch on the GPU, and a step of a slower GPU."""
TRANSFORMS = (
    v2.ColorJitter(brightness=(0.8, 1.2)),
    v2.ColorJitter(contrast=(0.8, 1.2)),
    v2.ColorJitter(saturation=(0.5, 1.5)),
    v2.ColorJitter(hue=(-0.05, 0.05)),
    v2.RandomAdjustSharpness(1.5, p=1.0),
    v2.RandomAffine(degrees=(-5, 5), translate=(0.05, 0.05)),
    v2.RandomPerspective(0.1, p=1.0),
)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", nargs="?", default="reported", choices=["reported", "fixed", "control"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=os.environ.get("BENCH_SECONDS"), help="train for so long")
    return parser.parse_args()


class SomeOf(nn.Module):
    """Apply four of the transforms, in random order."""

    def forward(self, pictures):
        for number in torch.randperm(len(TRANSFORMS))[:CHOSEN].tolist():
            pictures = TRANSFORMS[number](pictures)
        return pictures


class Episodes(Dataset):
    """Frames of two cameras, in memory."""

    def __init__(self, transform=None):
        self.frames = torch.randint(256, (FRAMES, 2, 3, SIDE, SIDE), dtype=torch.uint8)
        self.transform = transform

    def __len__(self):
        return FRAMES

    def __getitem__(self, index):
        pictures = self.frames[index]
        return pictures if self.transform is None else torch.stack([self.transform(one) for one in pictures])


def make_loader(variant):
    episodes = Episodes(None if variant == "fixed" else SomeOf())
    return DataLoader(episodes, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)


class Policy(nn.Module):
    """A small network for the pictures of both cameras."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(3 * (SIDE // 32) ** 2, 7))

    def forward(self, pictures):
        return self.layers(pictures.flatten(0, 1).float() / 255)


def on_device(pictures):
    """Augment a batch on a GPU; without one, wait for as long."""
    if pictures.device.type == "cpu":
        time.sleep(ON_DEVICE_S)
        return pictures
    return SomeOf()(pictures)


def train(loader, variant, device, seconds=None):
    """Train, for good or until so many seconds are measured; return the seconds of a step."""
    model = Policy().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    steps, began, started = 0, None, time.perf_counter()
    while True:
        for batch in loader:
            pictures = batch.to(device)
            if variant == "fixed":
                pictures = on_device(pictures)
            loss = model(pictures).square().mean()
            optimizer.zero_grad()
            loss.backward()
            time.sleep(SLOW_STEP_S if variant == "control" else STEP_S)
            optimizer.step()
            steps += 1
            if seconds is None:
                continue
            now = time.perf_counter()
            if began is None and now - started > min(WARM_UP_S, seconds):
                steps, began = 0, now
            elif began is not None and now - began > seconds:
                return (now - began) / steps


if __name__ == "__main__":
    given = parse()
    torch.set_num_threads(1)
    step_s = train(make_loader(given.variant), given.variant, given.device, given.seconds)
    print(json.dumps({"s_per_batch": step_s}))
