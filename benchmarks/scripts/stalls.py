"""A job whose stalls are those of a day, within minutes: a sample in 5,000, a worker now and then, a checkpoint.

Each is noted with its worker, sample, stage and line: `python stalls.py TRUTH SECONDS`.
"""

import json
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

import bottleneck

torch.set_num_threads(1)
SAMPLES, SLOW_SAMPLE, BATCH = 5_000, 1_777, 16
SLOW_S, STALL_S, SAVE_S = 1.0, 1.5, 0.8
STALL_EVERY_S, SAVE_EVERY_S = 30.0, 45.0
TRUTH = sys.argv[1]
with open(__file__) as source:
    LINES = {line.partition("  # ")[2].strip(): number for number, line in enumerate(source, 1)}


def note(what, **known):
    """Append a stall that begins now; whole lines, by any process."""
    line = json.dumps({"what": what, "at": time.time(), "line": LINES[what], **known}) + "\n"
    descriptor = os.open(TRUTH, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@bottleneck.stage("decode")
def decode(index):
    """Decode a sample, which is slow for one of them."""
    if index == SLOW_SAMPLE:
        note("sample", worker=get_worker_info().id, index=index, stage="decode")
        time.sleep(SLOW_S)  # sample
    return torch.zeros(16)


class Photos(Dataset):
    """Samples whose second worker stalls now and then."""

    def __init__(self):
        self.stalls_at = time.monotonic() + STALL_EVERY_S

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if get_worker_info().id == 1 and time.monotonic() > self.stalls_at:
            self.stalls_at = time.monotonic() + STALL_EVERY_S
            note("worker", worker=1, index=index, stage="other")
            time.sleep(STALL_S)  # worker
        return decode(index), index % 10


class Shuffled(Sampler):
    """Indices in random order, the slow one among the later: a first batch counts as the start of its epoch."""

    def __len__(self):
        return SAMPLES

    def __iter__(self):
        order = torch.randperm(SAMPLES).tolist()
        at = order.index(SLOW_SAMPLE)
        if at < BATCH:
            order[at], order[-1] = order[-1], order[at]
        return iter(order)


class Weights:
    """Take a while to save."""

    def __getstate__(self):
        time.sleep(SAVE_S)
        return {}


def main():
    """Train until the time is over."""
    ends_at = time.monotonic() + float(sys.argv[2])
    saves_at = time.monotonic() + SAVE_EVERY_S
    model = nn.Linear(16, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Photos(), batch_size=BATCH, sampler=Shuffled(), num_workers=2, persistent_workers=True)
    while time.monotonic() < ends_at:
        for images, labels in loader:
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            time.sleep(0.010)
            if time.monotonic() > saves_at:
                saves_at = time.monotonic() + SAVE_EVERY_S
                note("checkpoint")
                torch.save(Weights(), os.devnull)  # checkpoint


if __name__ == "__main__":
    main()
