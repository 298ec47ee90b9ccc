"""Starts slowly, in one way or several, and writes what each part took: `slow_start.py METHOD HOW ...`.

HOW is `unguarded` or `guarded`, an import of 2 s; `large`, a dataset that takes long to pickle; `lists`, one that lists
many files; `epochs`, short ones.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

METHOD, HOW = sys.argv[1], sys.argv[2:]
BEGAN_S = time.perf_counter()
if "unguarded" in HOW:
    import slow_import
if __name__ == "__main__" and "guarded" in HOW:
    import slow_import  # noqa: F401 - only the main process does so
IMPORTED_S = time.perf_counter()


class Photos(Dataset):
    def __init__(self, lists, names):
        self.names = [f"{number:09}.jpg" for number in range(names)]
        until_s = time.perf_counter() + (2.0 if lists else 0.0)
        while time.perf_counter() < until_s:
            self.found = sorted(os.listdir(os.path.dirname(os.__file__)))

    def __len__(self):
        return 640

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((3, 16, 16), float(index % 7)), index % 10


def train(model, optimizer, loader, marks):
    for images, labels in loader:
        marks.setdefault("first_batch_s", time.perf_counter())
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        time.sleep(0.008)
        if "first_step_s" not in marks:
            marks["first_step_s"] = time.perf_counter()
            Path("marks.json").write_text(json.dumps(marks))


def main():
    torch.set_num_threads(1)
    marks = {"began_s": BEGAN_S, "imported_s": IMPORTED_S, "making_s": time.perf_counter()}
    dataset = Photos("lists" in HOW, 2_000_000 if "large" in HOW else 10)
    marks["made_s"] = time.perf_counter()
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2, multiprocessing_context=METHOD)
    marks["starting_s"] = time.perf_counter()
    for _ in range(1000):
        train(model, optimizer, loader, marks)


if __name__ == "__main__":
    main()
