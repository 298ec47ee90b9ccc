"""A Hugging Face Trainer that takes the batches of a step all at once, evaluates and saves after each epoch."""

import sys

import torch
from jobs import Photos, Slow, make_model, wait_for_the_device
from torch import nn
from transformers import Trainer, TrainingArguments


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = make_model()[0]

    def forward(self, images, labels):
        scores = self.model(images)
        wait_for_the_device()
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def collate(items):
    return {"images": torch.stack([image for image, _ in items]), "labels": torch.tensor([label for _, label in items])}


if __name__ == "__main__":
    arguments = TrainingArguments(
        output_dir="out", per_device_train_batch_size=16, gradient_accumulation_steps=int(sys.argv[1]),
        num_train_epochs=1000, dataloader_num_workers=1, eval_strategy="epoch", save_strategy="epoch",
        remove_unused_columns=False, use_cpu=True, report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        Model(), arguments, data_collator=collate, train_dataset=Photos(640, Slow()), eval_dataset=Photos(32)
    )
    trainer.train()
    print("the end")
