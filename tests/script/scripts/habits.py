"""A loop with habits: it prepares each batch itself, logs after each step, and validates often by workers that end."""

import sys
import time

import torch
from jobs import Photos, make_model
from torch import nn
from torch.utils.data import DataLoader


def prepare(images):
    time.sleep(0.006)
    return images / 7


def log(loss):
    time.sleep(0.012)


if __name__ == "__main__":
    model, optimizer = make_model()
    validation = DataLoader(Photos(32), batch_size=8, num_workers=1)
    torch.autograd.set_detect_anomaly("anomaly" in sys.argv)
    for _ in range(1_000):
        for step, (images, labels) in enumerate(DataLoader(Photos(6_400), batch_size=16, num_workers=1)):
            prepared = prepare(images)
            nn.functional.cross_entropy(model(prepared), labels).backward()
            optimizer.step()
            log(step)
            if step % 20 == 0:
                for others, _ in validation:
                    model(others)
