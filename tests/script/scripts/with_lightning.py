"""Lightning's `fit`: epochs that end by their own count, each with a validation and a checkpoint."""

import lightning
import torch
from jobs import Photos, make_loader, make_model, wait_for_the_device
from torch import nn
from torch.utils.data import DataLoader


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = make_model()[0]

    def training_step(self, batch, _index):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        wait_for_the_device()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _index):
        self.log("validation", self.model(batch[0]).mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


if __name__ == "__main__":
    trainer = lightning.Trainer(max_epochs=1000, accelerator="cpu", logger=False, enable_progress_bar=False)
    trainer.fit(Module(), make_loader(), DataLoader(Photos(32), batch_size=16))
    print("the end")
