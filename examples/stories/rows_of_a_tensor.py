"""Training on a table that lies in memory, fetched row by row: `rows_of_a_tensor.py [fixed | control]`.

Rebuilt from a public report (pytorch #154318). `fixed` fetches a batch by one call. `control` trains a larger model on
16 rows at a time, where fetching them one by one costs next to nothing.
"""

import argparse
import json
import os
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

ROWS, COLUMNS, WARM_UP_S = 500_000, 100, 3.0


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", nargs="?", default="reported", choices=["reported", "fixed", "control"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=os.environ.get("BENCH_SECONDS"), help="train for so long")
    return parser.parse_args()


def make_loader(variant):
    generator = torch.Generator().manual_seed(0)
    table = TensorDataset(torch.rand(ROWS, COLUMNS, generator=generator), torch.rand(ROWS, 1, generator=generator))
    batch_size = 16 if variant == "control" else 20_000
    if variant == "fixed":
        batches = BatchSampler(RandomSampler(table), batch_size, drop_last=True)
        return DataLoader(table, batch_size=None, sampler=batches)
    return DataLoader(table, batch_size=batch_size, shuffle=True, drop_last=True)


def train(loader, variant, device, seconds=None):
    """Train, for good or until so many seconds are measured; return the seconds of a step."""
    wide = 8192 if variant == "control" else 64
    model = nn.Sequential(nn.Linear(COLUMNS, wide), nn.ReLU(), nn.Linear(wide, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    steps, began, started = 0, None, time.perf_counter()
    while True:
        for rows, target in loader:
            loss = nn.functional.mse_loss(model(rows.to(device)), target.to(device))
            optimizer.zero_grad()
            loss.backward()
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
