"""A Trainer of two ranks, the second of which loads slowly; rank 0 writes the result."""

import sys
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

import bottleneck
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
        output_dir=str(Path(sys.argv[1]).parent / "trainer"), use_cpu=True, ddp_backend="gloo", report_to=[],
        per_device_train_batch_size=4, dataloader_num_workers=1,
    )  # fmt: skip
    rows = rows_of(arguments.process_index)
    trainer = Trainer(model=Model(), args=arguments, train_dataset=rows, data_collator=collate)
    diagnosis = bottleneck.diagnose(bottleneck.Pipeline.from_trainer(trainer), budget="15s")
    if arguments.process_index == 0:
        Path(sys.argv[1]).write_text(diagnosis.to_json())


if __name__ == "__main__":
    main()
