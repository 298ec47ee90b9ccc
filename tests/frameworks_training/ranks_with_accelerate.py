"""A job of two ranks with accelerate, the second of which loads slowly; rank 0 writes the result."""

import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

import bottleneck


class Rows(Dataset):
    def __init__(self, load_s):
        self.load_s = load_s

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        time.sleep(self.load_s)
        return torch.full((8,), float(index)), index % 2


class Sleeping(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, rows):
        time.sleep(0.03)
        return self.head(rows)


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = Sleeping()
    loader = DataLoader(Rows(0.04 if accelerator.process_index else 0.001), batch_size=4, num_workers=1)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)

    def train_step(batch):
        rows, labels = batch
        loss = nn.functional.cross_entropy(model(rows), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    pipeline = bottleneck.Pipeline.from_loader(
        loader, model=model, train_step=train_step, optimizer=optimizer, device="cpu"
    )
    diagnosis = bottleneck.diagnose(pipeline, budget="15s")
    if accelerator.is_main_process:
        Path(sys.argv[1]).write_text(diagnosis.to_json())
    accelerator.end_training()


if __name__ == "__main__":
    main()
