"""Batches from a memory map, and no optimizer: `bottleneck.watch` is the one line that makes them known."""

import time

import numpy as np
import torch
from torch import nn

import bottleneck

torch.set_num_threads(1)
tokens = np.memmap("tokens.bin", dtype=np.int64, mode="w+", shape=10_000)
model = nn.Embedding(10, 8)


def get_batch():
    starts = torch.randint(len(tokens) - 65, (16,))
    time.sleep(0.02)
    return torch.stack([torch.from_numpy(tokens[start : start + 64].copy()) for start in starts])


for batch in bottleneck.watch(get_batch):
    model(batch).sum().backward()
    time.sleep(0.008)
