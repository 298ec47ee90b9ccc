"""Train ResNet-50 on JPEGs as a first draft does: `gpu_photographs.py [SECONDS]`, which prints its own speed.

Without a GPU a step sleeps instead of computing.
"""

import json
import sys
import time

import torch
from torch.utils.data import DataLoader
from torchvision.models import resnet50

from benchmarks.gpu_job import Photographs, Settings, tiny

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH = 64 if DEVICE.type == "cuda" else 8


def main(seconds):
    """Train for a while; the first half and two turns of the workers are the warm-up."""
    if DEVICE.type != "cuda":
        torch.set_num_threads(1)  # the workers need the cores
    model = (resnet50(weights=None) if DEVICE.type == "cuda" else tiny()).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    loader = DataLoader(Photographs(Settings()), BATCH, num_workers=2)
    turn = max(1, loader.num_workers)
    began_s, measured_s, samples, total = time.perf_counter(), None, 0, 0.0
    for number, (images, labels) in enumerate(loader, 1):
        loss = torch.nn.functional.cross_entropy(model(images.to(DEVICE)), labels.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if DEVICE.type != "cuda":
            time.sleep(0.010)
        total += loss.item()
        now_s = time.perf_counter()
        if measured_s is not None:
            samples += len(labels)
        if number % turn or number == turn:  # workers deliver in bursts
            continue
        if measured_s is not None and now_s > began_s + seconds:
            break
        if measured_s is None and now_s > began_s + seconds / 2:
            measured_s = now_s
    print(json.dumps({"samples_per_s": samples / (now_s - measured_s), "workers": loader.num_workers, "loss": total}))


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 1e9)
