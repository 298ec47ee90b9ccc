"""A dataset whose transform is planted to be slow, and what a diagnosis must not change."""

import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.support.looks import diagnose_until, names

SLOW_S = 0.012
STEP_S = 0.004
FEATURES = 8


def slow(values):
    time.sleep(SLOW_S)
    return values + torch.rand(()).round().to(values.dtype)


class Accelerator(nn.Module):
    """Takes its time without a core, as an accelerator does."""

    def forward(self, values):
        time.sleep(STEP_S)
        return values


class Rows(Dataset):
    """Rows of numbers with a label; samples are tuples, or the keywords of a model."""

    def __init__(self, names=None, transform=slow, dtype=torch.float32):
        self.names = names
        self.transform = transform
        self.dtype = dtype

    def __len__(self):
        return 512

    def __getitem__(self, index):
        values = self.transform(torch.full((FEATURES,), index % 8, dtype=self.dtype))
        return (values, index % 2) if self.names is None else dict(zip(self.names, (values, index % 2), strict=True))


def make_loader(dataset=None, **arguments):
    return DataLoader(dataset or Rows(), **{"batch_size": 2, "num_workers": 1, "shuffle": True} | arguments)


def random_state():
    python, numpy = random.getstate(), np.random.get_state()
    return python, numpy[0], numpy[1].tolist(), *numpy[2:], torch.get_rng_state().tolist()


def tensors(state):
    """A copy of a nested state that compares with ==."""
    if isinstance(state, torch.Tensor):
        return (tuple(state.shape), state.flatten().tolist())
    if isinstance(state, dict):
        return {key: tensors(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [tensors(value) for value in state]
    return state


def model_state(model):
    """Parameters, gradients, modes and the attributes of every part."""
    return {
        "parameters": tensors(dict(model.state_dict())),
        "gradients": {name: None if p.grad is None else tensors(p.grad) for name, p in model.named_parameters()},
        "modes": [part.training for part in model.modules()],
        "attributes": [{name: id(value) for name, value in vars(part).items()} for part in model.modules()],
    }


def diagnose(pipeline, expected="augment"):
    """A short diagnosis, and longer ones should others have kept the machine busy, as the report advises."""
    return diagnose_until(names(expected), pipeline, (9.0, 20.0, 35.0))
