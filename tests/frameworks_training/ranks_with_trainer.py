"""A script of two ranks that trains by a Trainer, the second of which loads slowly."""

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from tests.frameworks_training.slow_ranks import SleepingModel, rows_of


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = SleepingModel()

    def forward(self, rows, labels):
        return {"loss": nn.functional.cross_entropy(self.model(rows), labels)}


def collate(samples):
    rows, labels = zip(*samples, strict=True)
    return {"rows": torch.stack(rows), "labels": torch.tensor(labels)}


def main():
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, ddp_backend="gloo", report_to=[],
        per_device_train_batch_size=4, dataloader_num_workers=1, num_train_epochs=100, save_strategy="no",
    )  # fmt: skip
    rows = rows_of(arguments.process_index)
    Trainer(model=Model(), args=arguments, train_dataset=rows, data_collator=collate).train()


if __name__ == "__main__":
    main()
