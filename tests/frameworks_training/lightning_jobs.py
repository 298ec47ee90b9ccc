"""A small job of Lightning's."""

import lightning
import torch
from torch import nn

import bottleneck
from bottleneck.job.train_step import make_train_step
from tests.frameworks_training.slow_data import FEATURES, Accelerator, Rows, make_loader, tensors

CPU = torch.device("cpu")
BATCH = (torch.arange(4.0 * FEATURES).view(4, FEATURES).sin(), torch.tensor([0, 1, 0, 1]))


def make_module(package=lightning, **methods):
    """A LightningModule that logs, with other methods in the place of some of its own."""

    class Net(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 2))
            self.accelerator = Accelerator()

        def training_step(self, batch, batch_idx):
            values, labels = batch
            loss = nn.functional.cross_entropy(self.layers(self.accelerator(values)), labels)
            self.log("loss", loss, prog_bar=True)
            self.log_dict({"twice": 2 * loss})
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    module = type("Net", (Net,), methods)()
    module.layers[2].eval()
    return module


def make_datamodule(package=lightning, **methods):
    class Data(package.LightningDataModule):
        calls = ()

        def prepare_data(self):
            self.calls += ("prepare_data",)

        def setup(self, stage):
            self.calls += (f"setup {stage}",)
            self.rows = Rows()

        def train_dataloader(self):
            return make_loader(self.rows)

    return type("Data", (Data,), methods)()


def step_of(module, data=None, **changes):
    pipeline = bottleneck.Pipeline.from_lightning(module, data or make_loader(), **changes)
    return make_train_step(pipeline, CPU)


def weights(module):
    return tensors(dict(module.layers[0].state_dict()))


def make_trainer(tmp_path, **arguments):
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return lightning.Trainer(accelerator="cpu", default_root_dir=tmp_path, **quiet | arguments)
