"""Speech whose samples come one after the other in each process: `few_loader_processes.py [fixed | control]`.

Rebuilt from a public change (pocket-tts PR #289). A process makes 90 samples a second there, whatever its threads; here
it waits for 11 ms for each. `fixed` has six workers instead of three, `control` eight.
"""

import argparse
import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, SAMPLE_S, STEP_S, WARM_UP_S = 64, 0.011, 0.131, 3.0
WORKERS = {"reported": 3, "fixed": 6, "control": 8}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", nargs="?", default="reported", choices=[*WORKERS])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=os.environ.get("BENCH_SECONDS"), help="train for so long")
    return parser.parse_args()


class Speech(Dataset):
    """Features of recordings that are waited for."""

    def __len__(self):
        return 64_000

    def __getitem__(self, index):
        time.sleep(SAMPLE_S)
        return torch.full((80,), index / len(self))


def make_loader(variant):
    return DataLoader(Speech(), BATCH, shuffle=True, num_workers=WORKERS[variant], persistent_workers=True)


def train(loader, variant, device, seconds=None):
    """Train, for good or until so many seconds are measured; return the seconds of a step."""
    model = nn.Linear(80, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    steps, began, started = 0, None, time.perf_counter()
    while True:
        for features in loader:
            loss = model(features.to(device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            time.sleep(STEP_S)  # as much as the step takes there, on an H100
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
