"""A job with a slow sample, a worker that stalls, and a slow checkpoint."""

import argparse
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

import bottleneck

torch.set_num_threads(1)


@bottleneck.stage("decode")
def decode(index, seconds):
    if index == 777:
        time.sleep(seconds)  # the slow sample
    return torch.zeros(8)


class Photos(Dataset):
    def __init__(self, count, seconds):
        self.count, self.seconds, self.fetched = count, seconds, 0

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.fetched += 1
        worker = get_worker_info()
        if worker is not None and worker.id == 1 and self.fetched == self.count // 8:
            time.sleep(1.5 * self.seconds)  # the worker that stalls
        return decode(index, self.seconds), index


class Weights:
    def __init__(self, seconds):
        self.seconds = seconds

    def __getstate__(self):
        time.sleep(self.seconds)
        return {}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--start", default="fork")
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--checkpoint", default=os.devnull)
    parser.add_argument("--progress")
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--end", default="")
    arguments = parser.parse_args()
    model = nn.Linear(8, 2)
    if arguments.ddp:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(
        Photos(arguments.samples, arguments.seconds),
        batch_size=8,
        shuffle=True,
        num_workers=arguments.workers,
        multiprocessing_context=arguments.start if arguments.workers else None,
    )
    step = 0
    with open(arguments.progress or os.devnull, "w", buffering=1) as progress:
        for _ in range(arguments.epochs):
            for images, _ in loader:
                model(images).sum().backward()
                optimizer.step()
                time.sleep(0.002)
                step += 1
                progress.write(f"{step} {time.time()}\n")
            torch.save(Weights(arguments.seconds), arguments.checkpoint)  # the slow checkpoint
    print("trained", step)
    if arguments.ddp:
        torch.distributed.destroy_process_group()
    if arguments.end == "raise":
        raise ValueError("of the script")
    sys.exit(arguments.end or None)


if __name__ == "__main__":
    main()
