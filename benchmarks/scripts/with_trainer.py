"""A Hugging Face Trainer that takes the four batches of an update at once."""

import torch
from job import BATCH_SIZE, Photos, compute, inputs, make_model
from torch import nn
from transformers import Trainer, TrainingArguments


class Model(nn.Module):
    """Gives its loss, as the Trainer wants it."""

    def __init__(self):
        super().__init__()
        self.model = make_model()

    def forward(self, images, labels):
        """The loss of a batch."""
        scores = self.model(images)
        compute()
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def collate(items):
    """Make a batch."""
    return {"images": torch.stack([image for image, _ in items]), "labels": torch.tensor([label for _, label in items])}


if __name__ == "__main__":
    dataset, num_workers, collate_fn = inputs(Photos(load_s=0.030), 1, collate)
    arguments = TrainingArguments(
        output_dir="out", per_device_train_batch_size=BATCH_SIZE, gradient_accumulation_steps=4, num_train_epochs=100,
        dataloader_num_workers=num_workers, save_strategy="no", remove_unused_columns=False, use_cpu=True,
        report_to="none", disable_tqdm=True,
    )  # fmt: skip
    Trainer(Model(), arguments, data_collator=collate_fn, train_dataset=dataset).train()
