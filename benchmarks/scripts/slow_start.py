"""A training that starts slowly in one way: `slow_start.py KIND [changed] [once]`; it says what that way took.

The kinds: `unguarded`, an import that spawned workers run again; `guarded`, one of the main process alone; `listing`, a
dataset that opens 100,000 pictures; `pickle`, 200 MB that are sent to each spawned worker; `preload`, eight workers of
a server that each import what the script imports. With `changed` the start is as its advice would make it, and with
`once` the script ends after its first step. The seconds are printed as JSON. Nothing here knows of `bottleneck`.
"""

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

BEGAN_S = time.perf_counter()

import numpy as np  # noqa: E402 - its import is a part of what is timed
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

KIND, CHANGED, ONCE = sys.argv[1], "changed" in sys.argv, "once" in sys.argv
METHODS = {"unguarded": "spawn", "guarded": "fork", "listing": "fork", "pickle": "spawn", "preload": "forkserver"}
FOLDER = Path(os.environ.get("SLOW_START_FILES", "."))
"""Folder with the files that `listing` looks at."""
KEPT = FOLDER / "kept.npy"
CAPTIONS = 2_000_000
WORKERS = 8 if KIND == "preload" else 2

STARTED_S = time.perf_counter()
if KIND == "unguarded" and not CHANGED:
    import imported_slowly
if __name__ == "__main__" and KIND == "unguarded" and CHANGED:
    import imported_slowly
if __name__ == "__main__" and KIND == "guarded" and not CHANGED:
    import imported_slowly  # noqa: F401 - only the main process does so
IMPORTED_S = time.perf_counter()


def is_large(path):
    """Return True if a picture is not too small."""
    with Image.open(path) as image:
        return min(image.size) >= 1


def look_at_files():
    """Return the pictures that are not too small, by opening each of them."""
    return np.array([path.name for path in sorted(FOLDER.glob("*.png")) if is_large(path)])


class Photos(Dataset):
    """Samples that wait for two milliseconds."""

    def __init__(self):
        self.names = []
        if KIND == "listing":
            self.names = np.load(KEPT) if CHANGED else look_at_files()
        self.captions = [f"caption {number}".ljust(100) for number in range(CAPTIONS)] if KIND == "pickle" else []

    def __getstate__(self):
        return {**self.__dict__, "captions": None} if CHANGED else self.__dict__

    def __len__(self):
        return 640

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((3, 16, 16), float(index % 7)), index % 10


def main():
    """Train for as long as is asked."""
    torch.set_num_threads(1)
    if KIND == "preload" and CHANGED:
        multiprocessing.set_forkserver_preload(["numpy", "torch", "torch.utils.data"])
    making_s = time.perf_counter()
    dataset = Photos()
    made_s = time.perf_counter()
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    settings = {"batch_size": 16, "shuffle": True, "num_workers": WORKERS, "multiprocessing_context": METHODS[KIND]}
    loader = DataLoader(dataset, **settings)
    starting_s, first_s = time.perf_counter(), None
    for _ in range(1000):
        for images, labels in loader:
            received_s = time.perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            time.sleep(0.008)
            if first_s is None:
                first_s = time.perf_counter()
                parts = {"imports": IMPORTED_S - STARTED_S, "dataset": made_s - making_s}
                parts |= {"workers": received_s - starting_s, "whole": first_s - BEGAN_S}
                print(json.dumps(parts), flush=True)
                if ONCE:
                    return


if __name__ == "__main__":
    main()
