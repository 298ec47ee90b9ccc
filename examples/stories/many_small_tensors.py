"""Detection whose batches hold a hundred tiny tensors beside the pictures: `many_small_tensors.py [fixed | control]`.

Rebuilt from a public change (rf-detr PR #1399). `fixed` packs what belongs to the boxes of a batch into one tensor for
each of its seven names. `control` does so too, beside a step that takes longer than loading.
"""

import argparse
import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, BOXES, SIDE, WARM_UP_S = 16, 5, 64, 3.0
STEP_S = {"reported": 0.002, "fixed": 0.002, "control": 0.1}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", nargs="?", default="reported", choices=[*STEP_S])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=os.environ.get("BENCH_SECONDS"), help="train for so long")
    return parser.parse_args()


class Pictures(Dataset):
    """Pictures with boxes, as a detector wants them."""

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        boxes = torch.full((BOXES, 4), index / len(self))
        return torch.zeros(3, SIDE, SIDE), {
            "boxes": boxes,
            "labels": torch.zeros(BOXES, dtype=torch.int64),
            "area": boxes[:, 2] * boxes[:, 3],
            "iscrowd": torch.zeros(BOXES, dtype=torch.int64),
            "image_id": torch.tensor([index]),
            "orig_size": torch.tensor([SIDE, SIDE]),
            "size": torch.tensor([SIDE, SIDE]),
        }


def as_they_are(samples):
    pictures, targets = zip(*samples, strict=True)
    return torch.stack(pictures), targets


def packed(samples):
    """One tensor for each name, and how many rows of it belong to each picture."""
    pictures, targets = zip(*samples, strict=True)
    rows = {name: torch.cat([target[name] for target in targets]) for name in targets[0]}
    return torch.stack(pictures), (rows, {name: [len(target[name]) for target in targets] for name in rows})


def unpacked(targets):
    """The targets of each picture again: views, which copy nothing."""
    rows, counts = targets
    pieces = {name: rows[name].split(counts[name]) for name in rows}
    return [{name: pieces[name][at] for name in pieces} for at in range(BATCH)]


def make_loader(variant, workers=1):
    collate = as_they_are if variant == "reported" else packed
    return DataLoader(
        Pictures(), BATCH, shuffle=True, num_workers=workers, collate_fn=collate, persistent_workers=workers > 0
    )


def train(loader, variant, device, seconds=None):
    """Train, for good or until so many seconds are measured; return the seconds of a step."""
    model = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    steps, began, started = 0, None, time.perf_counter()
    while True:
        for pictures, targets in loader:
            each = targets if variant == "reported" else unpacked(targets)
            wanted = torch.stack([target["boxes"].mean(0) for target in each])
            loss = nn.functional.l1_loss(model(pictures.to(device)), wanted.to(device))
            optimizer.zero_grad()
            loss.backward()
            time.sleep(STEP_S[variant])  # as much as the rest of a detector takes on an accelerator
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
    step_s = train(make_loader(given.variant, given.workers), given.variant, given.device, given.seconds)
    print(json.dumps({"s_per_batch": step_s}))
