"""The data of the scripts: an augmentation that waits, and a small model."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # on a busy machine, threads of a small step wait for each other


class Slow:
    def __call__(self, image):
        time.sleep(0.0025)
        return image + 1


class Photos(Dataset):
    def __init__(self, count, transform=None):
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        image = torch.full((3, 16, 16), float(index % 7))
        return image if self.transform is None else self.transform(image), index % 10


def make_loader(count=640, **options):
    return DataLoader(Photos(count, Slow()), **{"batch_size": 16, "shuffle": True, "num_workers": 1, **options})


def make_model():
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def wait_for_the_device():
    time.sleep(0.008)


def train_on(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    wait_for_the_device()
    return loss.item()
