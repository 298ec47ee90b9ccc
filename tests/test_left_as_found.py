"""`diagnose` leaves the caller's model, data and process as it found them, also when it fails half way."""

import copy
import os
import random
import signal
import threading
import warnings

import numpy as np
import psutil
import pytest
import torch
from torch import nn
from torch.autograd import profiler as autograd_profiler
from torch.utils.data import DataLoader, Dataset, RandomSampler

import bottleneck.analysis.analyse  # noqa: F401 - scipy, when first imported, registers a filter for its own warning
from bottleneck.api import diagnose
from bottleneck.errors import MeasurementError
from bottleneck.job.pipeline import Pipeline

pytestmark = pytest.mark.integration


class Counting(Dataset):
    """Draws from all random numbers, counts its calls, and fails from an index on."""

    def __init__(self, fails_from=10**9):
        self.calls = 0
        self.handle = None
        self.fails_from = fails_from
        self.transform = Shift()

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        self.calls += 1
        self.handle = object()
        if self.calls > self.fails_from:
            raise ValueError("the file is truncated")
        noise = random.random() + float(np.random.rand())
        return self.transform(torch.randn(8) + noise), index % 3


class Shift:
    def __init__(self):
        self.generator = torch.Generator().manual_seed(3)

    def __call__(self, x):
        return x + torch.rand((), generator=self.generator)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.first = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.first.weight
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 3)
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        return self.head(self.drop(self.tied(torch.relu(self.first(self.norm(x))))))


class Job:
    """A job in the middle of its training."""

    def __init__(self, fails_from=10**9, num_workers=2):
        torch.manual_seed(1)
        self.model = Model()
        self.model.drop.eval()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.loss_fn = nn.CrossEntropyLoss()
        self.dataset = Counting(fails_from)
        self.generator = torch.Generator().manual_seed(7)
        sampler = RandomSampler(self.dataset, generator=self.generator)
        self.loader = DataLoader(self.dataset, 16, sampler=sampler, num_workers=num_workers, generator=self.generator)
        for _ in range(2):
            loss = self.loss_fn(self.model(torch.randn(16, 8)), torch.zeros(16, dtype=torch.long))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def pipeline(self):
        return Pipeline.from_loader(
            self.loader, model=self.model, loss_fn=self.loss_fn, optimizer=self.optimizer, device="cpu"
        )

    def state(self):
        """Everything that a caller could notice, as values."""
        parameters = dict(self.model.named_parameters())
        return {
            "model": copy.deepcopy(self.model.state_dict()),
            "gradients": {name: (id(p.grad), p.grad.clone()) for name, p in parameters.items()},
            "identities": {name: (id(p), p.data_ptr()) for name, p in parameters.items()},
            "modes": [module.training for module in self.model.modules()],
            "python attributes": self.model.steps,
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
            "dataset": {key: id(value) for key, value in vars(self.dataset).items()},
            "transform": self.dataset.transform.generator.get_state(),
            "loader": {key: id(value) for key, value in vars(self.loader).items()},
            "sampler": {key: id(value) for key, value in vars(self.loader.sampler).items()},
            "generator": self.generator.get_state(),
            "python random": random.getstate(),
            "numpy random": np.random.get_state(),
            "torch random": torch.get_rng_state(),
            "flags": (
                torch.backends.cudnn.benchmark,
                torch.backends.cudnn.deterministic,
                torch.is_grad_enabled(),
                torch.get_num_threads(),
            ),
            "signals": {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)},
            "warnings": list(warnings.filters),
            "threads": threading.active_count(),
            "children": len(psutil.Process().children(recursive=True)),
        }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return bool((a == b).all())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def changed(before, after):
    return [name for name in before if not same(before[name], after[name])]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_nothing_is_changed_by_a_diagnosis(num_workers):
    job = Job(num_workers=num_workers)
    before = job.state()
    diagnosis = diagnose(job.pipeline(), budget="3s")
    assert changed(before, job.state()) == []
    assert diagnosis.cost.batches > 0
    assert not [warning for warning in diagnosis.warnings if warning.id == "not-restored"]


def test_nothing_is_changed_by_traces(tmp_path):
    job = Job(num_workers=0)
    before = job.state(), dict(os.environ), dict(vars(autograd_profiler))
    diagnosis = diagnose(job.pipeline(), budget="2s", trace=tmp_path)
    assert diagnosis.evidence.trace.device.steps
    assert changed(before[0], job.state()) == []
    assert dict(os.environ) == before[1]
    assert dict(vars(autograd_profiler)) == before[2]
    with autograd_profiler.profile() as theirs:
        torch.ones(3).sum()
    assert "aten::sum" in {event.name for event in theirs.function_events}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_nothing_is_changed_by_a_diagnosis_that_fails_half_way(num_workers):
    job = Job(fails_from=400, num_workers=num_workers)
    before = job.state()
    with pytest.raises(MeasurementError, match="the file is truncated") as caught:
        diagnose(job.pipeline(), budget="6s")
    assert changed(before, job.state()) == []
    assert caught.value.diagnosis.cost.seconds > 0


def test_the_comparison_sees_each_kind_of_change():
    job = Job(num_workers=0)
    before = job.state()
    next(iter(job.loader))
    job.model(torch.randn(4, 8))
    seen = changed(before, job.state())
    assert {"model", "python attributes", "dataset", "transform", "torch random", "python random"} <= set(seen)
