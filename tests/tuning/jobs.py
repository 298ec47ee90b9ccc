"""Jobs that changes are tried on, and facts about them; and a check for PyTorch before 2.6."""

import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset
from torchvision import transforms

from bottleneck.job.loader_args import loader_argument_names
from bottleneck.job.pipeline import Pipeline
from bottleneck.tuner.change import Context
from bottleneck.tuner.changes import BUILT_IN

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
BY_NAME = {change.name: change for change in BUILT_IN}
NEEDS_IN_ORDER = pytest.mark.skipif("in_order" not in loader_argument_names(), reason="this torch has no in_order")


def where_there(names):
    """Names of changes as parameters of a test."""
    return [pytest.param(name, marks=NEEDS_IN_ORDER) if name == "in_order" else name for name in names]


def here(pipeline, device=CPU, **fields):
    return Context(pipeline, pipeline, pipeline.make_loader(), device, **{"cores": 8, **fields})


def table_job(dataset=None, **fields):
    """A job with batches of one tensor, or of what a dataset gives."""
    given = {"model": nn.Linear(3, 2), "loss_fn": nn.CrossEntropyLoss(), "batch_size": 4, "device": "cpu"}
    return Pipeline(dataset=dataset or TensorDataset(torch.rand(32, 3)), **{**given, **fields})


class Pictures:
    """Pictures of noise, with a transform where torchvision's datasets have it."""

    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 64

    def __getitem__(self, index):
        pixels = torch.randint(0, 256, (16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(index))
        return self.transform(Image.fromarray(pixels.numpy())), index % 4


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def pictures_job(transform=None, **fields):
    model = network()
    normalized = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.2))])
    given = {"dataset": Pictures(transform or normalized), "model": model, "loss_fn": nn.CrossEntropyLoss()}
    optimizer = torch.optim.Adam(model.parameters())
    return Pipeline(**{**given, "optimizer": optimizer, "batch_size": 4, "device": "cpu", **fields})


class Stream(IterableDataset):
    def __iter__(self):
        yield from torch.zeros(100, 3)
