"""A script of two ranks that trains by Lightning, the second of which loads slowly."""

import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.frameworks_training.slow_ranks import SleepingModel, rows_of


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = SleepingModel()

    def training_step(self, batch, batch_idx):
        rows, labels = batch
        return nn.functional.cross_entropy(self.model(rows), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=100, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(rows_of(int(os.environ["RANK"])), batch_size=4, num_workers=1))
