"""A job of several ranks that sleeps: its times, and what goes wrong, come from the environment.

JOB is a JSON object of keyword arguments of `Plan`, and RANK is the launcher's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

import bottleneck

RANK = int(os.environ["RANK"])
BATCH = 4


@dataclass
class Plan:
    """Times of the job, per batch, and the way in which its second rank fails."""

    load_s: float = 0.004
    augment_s: float = 0.004
    step_s: float = 0.02
    share_s: float = 0.0
    failure: str = ""
    """Failure of rank 1, in its step number 150: `raise`, `kill`; or `sample`, while it records."""
    told_at: int = 0
    told_in: str = ""
    """A file that rank 0 makes in its step of that number."""


PLAN = Plan(**json.loads(os.environ.get("JOB", "{}")))


class Samples(Dataset):
    def __init__(self, count):
        self.count = count
        self.transform = augment

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(load(index))


def load(index):
    if PLAN.failure == "sample" and RANK == 1 and index > 200:
        raise ValueError("a broken sample")
    time.sleep(PLAN.load_s / BATCH)
    return torch.full((8,), float(index))


def augment(sample):
    time.sleep(PLAN.augment_s / BATCH)
    return sample * 1.0


class Step:
    def __init__(self, model):
        self.model, self.steps = model, 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def __call__(self, batch):
        self.steps += 1
        time.sleep(PLAN.step_s)
        if RANK == 1 and self.steps == 150:
            fail()
        if RANK == 0 and self.steps == PLAN.told_at:
            Path(PLAN.told_in).touch()
        loss = self.model(batch).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def fail():
    if PLAN.failure == "raise":
        raise ValueError("a broken step")
    if PLAN.failure == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def share(_, bucket):
    time.sleep(PLAN.share_s)
    return allreduce_hook(None, bucket)


def build():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 2, bias=False))
    if PLAN.share_s:
        model.register_comm_hook(None, share)
    return bottleneck.Pipeline(
        dataset=Samples(10_000),
        batch_size=BATCH,
        num_workers=2,
        model=model,
        train_step=Step(model),
        device="cpu",
    )


def main():
    """Diagnose from Python, as a training script would; the first rank writes the result to the path given."""
    diagnosis = bottleneck.diagnose(build(), budget=float(sys.argv[2]))
    if RANK == 0:
        with open(sys.argv[1], "w") as file:
            file.write(diagnosis.to_json())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
