"""A worker's own clock: when it made each batch, and what of that went into which stage."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset

from bottleneck.job.cuts import find_sites
from bottleneck.loader.observe.stage_clock import StageClock
from bottleneck.loader.record.cutting import install
from bottleneck.loader.record.plan import Plan
from bottleneck.loader.record.tape import Tape
from bottleneck.loader.worker.user_code import UserCode

now = SimpleNamespace(s=100.0)


class Augment:
    def __call__(self, image):
        now.s += 3
        return image + 1


class Photos(Dataset):
    def __init__(self):
        self.transform = Augment()

    def __len__(self):
        return 10

    def __getitem__(self, index):
        now.s += 2
        image = self.transform(torch.tensor([float(index)]))
        now.s += 0.5
        return image


def collate(samples):
    now.s += 1
    return torch.stack(samples)


class Box:
    def write(self, worker, batches):
        self.worker, self.batches = worker, batches


@pytest.mark.parametrize(
    ("plan", "stages"),
    [
        (Plan("template", sites=("transform",), within_sample=("augment", "load")), {"load": 5.0, "augment": 6.0}),
        (
            Plan("tail", sites=("transform",), within_sample=("finish", "augment", "load")),
            {"load": 4.0, "augment": 6.0, "finish": 1.0},
        ),
        (Plan("fetch", within_sample=("fetch",)), {"fetch": 11.0}),
    ],
)
def test_each_batch_has_its_time_and_that_of_its_stages(plan, stages):
    dataset, tape, box = Photos(), Tape(), Box()
    cut = install(dataset, find_sites(dataset), tape, in_place=True)
    clock = StageClock(UserCode(cut, collate, 3, batched=True), tape, box, lambda: now.s)
    clock.plan = plan
    begins = []
    for number in itertools.count():
        begins.append(now.s)
        batch = clock.collate(clock.fetch([1, 2]))
        if number == 1:
            break
        now.s += 7  # between two batches it rests
    assert batch.tolist() == [[2.0], [3.0]]
    assert box.worker == 3
    assert [made.begin_s for made in box.batches] == begins
    assert [made.end_s - made.begin_s for made in box.batches] == [12.0, 12.0]
    assert [made.stages for made in box.batches] == [{**stages, "collate": 1.0}] * 2


def test_a_batch_that_was_given_up_is_not_kept():
    dataset, tape, box = Photos(), Tape(), Box()
    clock = StageClock(UserCode(dataset, collate, 0, batched=True), tape, box, lambda: now.s)
    samples = clock.fetch([1])
    clock.drop()
    clock.collate(samples)
    assert not hasattr(box, "batches")
