"""As torchvision's reference scripts: a meter around the loader, workers that are spawned, a batch in a dataclass."""

import argparse
import time
from dataclasses import dataclass

import torch
from jobs import Slow, make_model, wait_for_the_device
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


@dataclass
class Batch:
    images: torch.Tensor
    targets: dict


class Own(Dataset):
    """Is found by the workers in `__main__`."""

    def __init__(self):
        self.transform = Slow()

    def __len__(self):
        return 640

    def __getitem__(self, index):
        return self.transform(torch.full((3, 16, 16), float(index % 7))), index % 10


def collate(items):
    images, labels = zip(*items, strict=True)
    return Batch(torch.stack(images), {"labels": [torch.tensor(labels)]})


def log_every(loader, print_freq):
    began, last = time.time(), len(loader) - 1
    for at, batch in enumerate(loader):
        yield batch
        if at % print_freq == 0 or at == last:
            print(f"[{at}/{last + 1}] {time.time() - began:.3f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.parse_args()
    torch.set_num_threads(1)
    dataset = Own()
    train = DataLoader(
        dataset, batch_size=16, sampler=RandomSampler(dataset), num_workers=1, collate_fn=collate,
        multiprocessing_context="spawn", persistent_workers=True,
    )  # fmt: skip
    model, optimizer = make_model()
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(100):
        for batch in log_every(train, 10):
            with torch.amp.autocast("cpu"):
                loss = nn.functional.cross_entropy(model(batch.images), batch.targets["labels"][0])
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            wait_for_the_device()
            scaler.step(optimizer)
            scaler.update()
    print("the end")
