"""Loops that train for ever on what sleeps: `loops.py KIND`.

`loader` waits for one worker that takes 40 ms for a batch, with a step of 10 ms; `fast` has a loader that is quicker
than its step; `function` makes each batch in 30 ms, `child` trains in a separate process; `nothing` only
sleeps.
"""

import itertools
import subprocess
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Rows(Dataset):
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(self.seconds)  # the costliest line of workers
        return torch.zeros(8)


def get_batch():
    time.sleep(0.03)  # the costliest line of the function
    return torch.zeros(4, 8)


def batches_of(kind):
    if kind == "function":
        return None
    return DataLoader(Rows(0.01 if kind == "loader" else 0.0001), batch_size=4, num_workers=1)


def main(kind):
    if kind == "child":
        subprocess.run([sys.executable, __file__, "loader"], check=True)
    while kind == "nothing":
        time.sleep(0.01)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_on(rows):
        model(rows).mean().backward()
        optimizer.step()
        time.sleep(0.01 if kind == "loader" else 0.02)

    loader = batches_of(kind)
    for _ in itertools.count():
        if loader is None:
            rows = get_batch()
            loss = model(rows).mean()
            loss.backward()
            optimizer.step()
            time.sleep(0.01)
            continue
        for rows in loader:
            train_on(rows)


if __name__ == "__main__":
    main(sys.argv[1])
