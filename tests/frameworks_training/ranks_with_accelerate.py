"""A script of two ranks that trains by accelerate, the second of which loads slowly."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

from tests.frameworks_training.slow_ranks import SleepingModel, rows_of


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = SleepingModel()
    loader = DataLoader(rows_of(accelerator.process_index), batch_size=4, num_workers=1)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    for _ in range(100):
        for rows, labels in loader:
            accelerator.backward(nn.functional.cross_entropy(model(rows), labels))
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
