"""A loop with habits: it prepares each batch itself, logs after each step, and validates often by workers that end."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def prepare(images):
    time.sleep(0.012)
    return images / 7


def log(step):
    time.sleep(0.024)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.autograd.set_detect_anomaly(True)
    images, labels = torch.ones(6_400, 768), torch.zeros(6_400, dtype=torch.long)
    train = DataLoader(TensorDataset(images, labels), batch_size=16, num_workers=1)
    validation = DataLoader(TensorDataset(images[:32]), batch_size=8, num_workers=1)
    model = nn.Linear(768, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(1_000):
        for step, (batch, wanted) in enumerate(train):
            nn.functional.cross_entropy(model(prepare(batch)), wanted).backward()
            optimizer.step()
            log(step)
            if step % 5 == 0:
                for (others,) in validation:
                    model(others)
