"""Train as timm and apex do: the next batch travels on a stream of its own while the model computes.

Each image holds its own label as its pixels, so that a batch that is read before it has arrived shows.
The number of wrong images goes to the file that is named as the first argument.
"""

import sys
from pathlib import Path

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIDE, BATCH, WORKERS = (224, 256, 8) if DEVICE.type == "cuda" else (32, 16, 1)
LOOK_EVERY = 20


class Labelled(Dataset):
    """Images whose pixels are all the label."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        label = index % 251 + 1
        return torch.full((3, SIDE, SIDE), label, dtype=torch.uint8), label


def prefetched(loader):
    """Yield batches on the device; each is copied while the one before it is used."""
    if DEVICE.type != "cuda":
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


def main():
    """Train until somebody stops it."""
    model = torchvision.models.resnet18(weights=None, num_classes=252).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(Labelled(), BATCH, shuffle=True, num_workers=WORKERS, pin_memory=True, drop_last=True)
    wrong, seen = torch.zeros((), dtype=torch.int64, device=DEVICE), 0
    for step, (images, labels) in enumerate(prefetched(loader)):
        wrong += (images.amax((1, 2, 3)) != labels).sum()
        loss = torch.nn.functional.cross_entropy(model(images / 255), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(images)
        if step % LOOK_EVERY == 0 and len(sys.argv) > 1:
            Path(sys.argv[1]).write_text(f"{int(wrong)} {seen}", encoding="utf-8")


if __name__ == "__main__":
    main()
