"""Lightning's `fit`, with a validation, a checkpoint and a logged loss."""

import lightning
import torch
from job import BATCH_SIZE, Photos, compute, inputs, make_model
from torch import nn
from torch.utils.data import DataLoader


class Module(lightning.LightningModule):
    """A classifier."""

    def __init__(self):
        super().__init__()
        self.model = make_model()

    def training_step(self, batch, _index):
        """One batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        compute()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _index):
        """One batch of the validation."""
        self.log("validation", self.model(batch[0]).mean())

    def configure_optimizers(self):
        """Plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    dataset, num_workers, collate = inputs(Photos(augment_s=0.036), 1)
    train = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=num_workers, collate_fn=collate)
    trainer = lightning.Trainer(
        max_epochs=100, accelerator="cpu", logger=False, enable_progress_bar=False, num_sanity_val_steps=1
    )
    trainer.fit(Module(), train, DataLoader(Photos(), batch_size=BATCH_SIZE))
