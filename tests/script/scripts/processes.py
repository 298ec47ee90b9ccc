"""Trains in separate processes: `processes.py HOW`."""

import multiprocessing
import sys

import torch
from jobs import make_loader, make_model, train_on


def train(rank):
    model, optimizer = make_model()
    for images, labels in make_loader(num_workers=0):
        train_on(model, optimizer, images, labels)


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        torch.multiprocessing.spawn(train, nprocs=2)
    else:
        ranks = [multiprocessing.get_context("fork").Process(target=train, args=(rank,)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
