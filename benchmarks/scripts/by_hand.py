"""Batches taken one by one without workers, gradients of two gathered, a learning rate that counts its steps."""

import torch
from job import BATCH_SIZE, Photos, compute, inputs, make_model
from torch import nn
from torch.utils.data import DataLoader


def endless(loader):
    """Give the batches of one epoch after the other."""
    while True:
        yield from loader


dataset, num_workers, collate = inputs(Photos(augment_s=0.016), 0)
train = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=num_workers, collate_fn=collate)
batches = endless(train)
model = make_model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=10_000)
for _ in range(10_000):
    optimizer.zero_grad()
    for _ in range(2):
        images, labels = next(batches)
        nn.functional.cross_entropy(model(images), labels).backward()
        compute()
    optimizer.step()
    scheduler.step()
