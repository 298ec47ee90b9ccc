"""The training script's own loader, model and optimizer, for `bottleneck diagnose job.py:build`."""

import torch
from torch import nn
from train import make_loader, make_model

from bottleneck import Pipeline


def build() -> Pipeline:
    """The job of train.py."""
    torch.set_num_threads(1)  # as train.py does
    model = make_model()
    return Pipeline.from_loader(
        make_loader(),
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
    )
