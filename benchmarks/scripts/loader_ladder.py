"""The job of PyTorch's tutorial on loading data, and its ladder by hand: `loader_ladder.py [WORKERS [THREADS]] [keep]`.

Written from the tutorial's description: each sample is a wait of 5 ms, as for a disk or the network, and a picture of
random numbers; an epoch has 16 batches of 32, so that workers start again and again. There the last rung is worth as
much as all others together: a `__getitems__` that waits once for a whole batch. What serves the samples one by one
cannot be asked for that, and waits for all of them at the same time instead, in threads. A step that waits for 20 ms
stands for the device.
"""

import concurrent.futures
import multiprocessing
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMBERS = [int(word) for word in sys.argv[1:] if word.isdecimal()]
WORKERS, THREADS = (*NUMBERS, 0, 0)[:2]
KEEP = "keep" in sys.argv[1:]
SECONDS = float(os.environ.get("BENCH_SECONDS", "0"))
WARM_EPOCHS = 2

torch.set_num_threads(1)
pool = concurrent.futures.ThreadPoolExecutor(max(1, THREADS))


class Pictures(Dataset):
    """Pictures that are waited for."""

    def __len__(self):
        return 512

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.randn(3, 224, 224), index % 10


class PicturesAtOnce(Pictures):
    """A whole batch of them."""

    def __getitems__(self, indices):
        return list(pool.map(self.__getitem__, indices))


def main():
    """Train; with BENCH_SECONDS for so long, and then tell the milliseconds of a batch, over whole epochs."""
    dataset = PicturesAtOnce() if THREADS else Pictures()
    loader = DataLoader(dataset, 32, shuffle=True, num_workers=WORKERS, persistent_workers=KEEP and WORKERS > 0)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches, began_s = 0, time.perf_counter()
    for epoch in range(1000):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            time.sleep(0.020)
            optimizer.step()
            batches += 1
        if epoch == WARM_EPOCHS - 1:
            batches, began_s = 0, time.perf_counter()
        elif SECONDS and time.perf_counter() - began_s > SECONDS and epoch >= WARM_EPOCHS:
            print(f'{{"s_per_batch": {(time.perf_counter() - began_s) / batches}}}', flush=True)
            for child in multiprocessing.active_children():
                child.terminate()
            os._exit(0)


if __name__ == "__main__":
    main()
