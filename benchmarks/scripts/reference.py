"""As torchvision's reference scripts: a meter around the loader, a worker that is spawned, a batch in a dataclass."""

import time
from dataclasses import dataclass

import torch
from job import BATCH_SIZE, Photos, compute, inputs, make_model
from torch import nn
from torch.utils.data import DataLoader


@dataclass
class Batch:
    """Times of the loop."""

    images: torch.Tensor
    labels: torch.Tensor


def collate(items):
    """Make a batch."""
    images, labels = zip(*items, strict=True)
    return Batch(torch.stack(images), torch.tensor(labels))


def log_every(loader, print_freq):
    """Give the batches, and say now and then how long they took."""
    began = time.time()
    for at, batch in enumerate(loader):
        yield batch
        if at % print_freq == 0:
            print(f"[{at}/{len(loader)}] {time.time() - began:.3f} s")


if __name__ == "__main__":
    dataset, num_workers, collate_fn = inputs(Photos(load_s=0.030), 1, collate)
    started = {"multiprocessing_context": "spawn", "persistent_workers": True} if num_workers else {}
    train = DataLoader(
        dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=num_workers, collate_fn=collate_fn, **started
    )
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(100):
        for batch in log_every(train, 100):
            loss = nn.functional.cross_entropy(model(batch.images), batch.labels)
            optimizer.zero_grad()
            loss.backward()
            compute()
            optimizer.step()
