"""Batches of a generator whose stages are marked, with or without a thread that runs ahead of the loop."""

import queue
import sys
import threading
import time

import torch
from jobs import wait_for_the_device
from torch import nn

import bottleneck


@bottleneck.stage("read")
def read():
    time.sleep(0.005)
    return list(range(64))


@bottleneck.stage("tokenize")
def tokenize(text):
    time.sleep(0.015)
    return [token + 1 for token in text]


@bottleneck.stage("pack")
def pack(tokens):
    time.sleep(0.010)
    return torch.tensor(tokens, dtype=torch.float32).repeat(4, 1)


def batches():
    while True:
        yield pack(tokenize(read()))


def ahead(given):
    ready = queue.Queue(2)

    def fill():
        for batch in given:
            ready.put(batch)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield ready.get()


if __name__ == "__main__":
    model = nn.Linear(64, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    watched = bottleneck.watch(batches())
    for batch in ahead(watched) if "--ahead" in sys.argv else watched:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        wait_for_the_device()
