"""A job of two ranks with accelerate, the second of which loads slowly; rank 0 writes the result."""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

import bottleneck
from tests.frameworks_training.slow_ranks import SleepingModel, rows_of


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = SleepingModel()
    loader = DataLoader(rows_of(accelerator.process_index), batch_size=4, num_workers=1)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    pipeline = bottleneck.Pipeline.from_accelerate(accelerator, model, optimizer, loader, loss_fn=nn.CrossEntropyLoss())
    diagnosis = bottleneck.diagnose(pipeline, budget="15s")
    if accelerator.is_main_process:
        Path(sys.argv[1]).write_text(diagnosis.to_json())
    accelerator.end_training()


if __name__ == "__main__":
    main()
