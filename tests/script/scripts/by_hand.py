"""Batches taken one by one, gradients of several gathered, a learning rate that counts its steps."""

import itertools
import sys

import torch
from jobs import make_loader, make_model, train_on
from torch import nn

train = make_loader(num_workers=0)
model, optimizer = make_model()
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=20)
batches = itertools.cycle(train)
for _ in range(100_000):
    images, labels = next(batches)
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    images, labels = next(batches)
    train_on(model, optimizer, images, labels)
    scheduler.step()
print("the end", file=sys.stderr)
