"""Train ResNet-50 on JPEGs as a first draft does: `gpu_photographs.py [SECONDS]`, which prints samples a second."""

import sys
import time

import torch
from torch.utils.data import DataLoader
from torchvision.models import resnet18, resnet50

from benchmarks.gpu_job import Photographs, Settings

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CUDA = DEVICE.type == "cuda"


def main(seconds):
    """Train for a while; the first half is the warm-up."""
    model = (resnet50 if CUDA else resnet18)(weights=None).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    loader = DataLoader(Photographs(Settings(side=224 if CUDA else 64)), 64 if CUDA else 8, num_workers=2)
    began_s, measured_s, samples, total = time.perf_counter(), None, 0, 0.0
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images.to(DEVICE)), labels.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        now_s = time.perf_counter()
        if measured_s is not None:
            samples += len(labels)
        elif now_s > began_s + seconds / 2:
            measured_s = now_s
        if now_s > began_s + seconds:
            break
    print(samples / (now_s - measured_s), total)


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 1e9)
