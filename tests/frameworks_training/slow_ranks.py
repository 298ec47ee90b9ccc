"""A job of two ranks, the second of which loads slowly."""

import time

import torch
from torch import nn
from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, load_s):
        self.load_s = load_s

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        time.sleep(self.load_s)
        return torch.full((8,), float(index)), index % 2


def rows_of(rank):
    return Rows(0.04 if rank else 0.001)


class SleepingModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, rows):
        time.sleep(0.03)
        return self.head(rows)
