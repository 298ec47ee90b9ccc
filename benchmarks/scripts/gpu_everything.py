"""Train with all that scripts have: compiled, fp16 with a scaler, 4 batches an update, the next batch copied ahead.

`gpu_everything.py TOLD [SECONDS]`. Each image holds its own label as its pixels, so that a batch that is read before
it has arrived shows. What the script knows of itself goes to the file TOLD: wrong images, compilations and, at the
end of SECONDS, its speed. Without a GPU a step sleeps instead of computing, and torch compiles without a C compiler.
"""

import json
import shutil
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.gpu_truth import Marks, PlainLoop

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CUDA = DEVICE.type == "cuda"
SIDE, BATCH, WORKERS = (224, 256, 8) if CUDA else (32, 16, 1)
BACKEND = "inductor" if CUDA and any(map(shutil.which, ("cc", "gcc", "clang"))) else "aot_eager"
SMALL = torch.float16 if CUDA else torch.bfloat16
PER_UPDATE, LOOK_EVERY, CLASSES, WARM_UP_S = 4, 20, 252, 2.0


class Labelled(Dataset):
    """Images whose pixels are all the label."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        label = index % 251 + 1
        return torch.full((3, SIDE, SIDE), label, dtype=torch.uint8), label


def prefetched(loader):
    """Yield batches on the device; each is copied while the one before it is used."""
    if not CUDA:
        yield from ((images.float(), labels) for images, labels in loader)
        return
    stream, ready = torch.cuda.Stream(), None
    for images, labels in loader:
        with torch.cuda.stream(stream):
            moved = images.to(DEVICE, non_blocking=True).float(), labels.to(DEVICE, non_blocking=True)
        if ready is not None:
            yield ready
        torch.cuda.current_stream().wait_stream(stream)
        for part in moved:
            part.record_stream(torch.cuda.current_stream())
        ready = moved


def make_model():
    """A few convolutions: much to compute, and little to compile."""
    if not CUDA:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE**2, CLASSES))
    layers, width = [], 3
    for wider in (128, 256, 512):
        layers += [torch.nn.Conv2d(width, wider, 5, stride=2, padding=2), torch.nn.BatchNorm2d(wider), torch.nn.ReLU()]
        width = wider
    layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(width, CLASSES)]
    return torch.nn.Sequential(*layers)


class Training:
    """A training loop's steps, and facts on them."""

    def __init__(self, told):
        self.told, self.steps, self.seen = told, 0, 0
        self.model = torch.compile(make_model().to(DEVICE), backend=BACKEND)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.scaler = torch.amp.GradScaler(DEVICE.type)
        self.wrong = torch.zeros((), dtype=torch.int64, device=DEVICE)

    def step(self, batch):
        """Train on a batch; the optimizer's step comes with every fourth."""
        images, labels = batch
        self.wrong += (images.amax((1, 2, 3)) != labels).sum()
        with torch.autocast(DEVICE.type, SMALL):
            loss = torch.nn.functional.cross_entropy(self.model(images / 255), labels) / PER_UPDATE
        self.scaler.scale(loss).backward()
        self.steps, self.seen = self.steps + 1, self.seen + len(images)
        if self.steps % PER_UPDATE == 0:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        if not CUDA:
            time.sleep(0.010)
        if self.steps % LOOK_EVERY == 0:
            self.tell()

    def tell(self, **facts):
        """Write the facts so far."""
        compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        known = {"wrong_images": int(self.wrong), "seen_images": self.seen, "compiled": compiled, "backend": BACKEND}
        new = self.told.with_suffix(".new")
        new.write_text(json.dumps({**known, **facts}), encoding="utf-8")
        new.replace(self.told)  # at once: the script may be ended at any time


def main(told, seconds):
    """Train until somebody stops it, or for a while after it has been compiled."""
    if not CUDA:
        torch.set_num_threads(1)  # the workers need the cores
    training = Training(told)
    loader = DataLoader(Labelled(), BATCH, shuffle=True, num_workers=WORKERS, pin_memory=CUDA, drop_last=True)
    batches = prefetched(loader)
    if seconds is None:
        for batch in batches:
            training.step(batch)
        return
    training.step(next(batches))
    loop = PlainLoop(lambda batch: batch, training.step, WORKERS, Marks(DEVICE), lambda batch: len(batch[0]))
    found = loop.run(batches, seconds, min(WARM_UP_S, seconds / 2))
    training.tell(**found.facts())


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if sys.argv[2:] else None)
