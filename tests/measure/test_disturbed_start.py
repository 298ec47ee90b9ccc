"""A disturbance while the first blocks are measured does not decide later measurements; in invented time."""

import pytest
import torch
from torch.utils.data import Dataset, default_collate

from bottleneck.analysis.analyse import judge
from bottleneck.measure.options import MeasureOptions
from bottleneck.results.records import blocks_of
from tests.support.clock import FakeClock
from tests.support.sessions import blocks, pipeline_of, run

STEP_S, COLLATE_S, LOAD_S = 0.028, 0.006, 0.0002


class World:
    """Time that passes thirty times as slowly for a while, as where others take the cores."""

    def __init__(self, disturbed_s):
        self.clock, self.until_s = FakeClock(50.0, per_reading_s=1e-5), 50.0 + disturbed_s

    def spend(self, seconds):
        self.clock.advance(seconds * (30 if self.clock.now_s < self.until_s else 1))

    def step(self, _):
        self.spend(STEP_S)

    def collate(self, samples):
        self.spend(COLLATE_S)
        return default_collate(samples)


class Samples(Dataset):
    def __init__(self, world):
        self.world = world

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        self.world.spend(LOAD_S)
        return torch.zeros(2) + index


def diagnosed(disturbed_s):
    world = World(disturbed_s)
    job = pipeline_of(Samples(world), train_step=world.step, collate_fn=world.collate, num_workers=0, batch_size=4)
    return run(job, MeasureOptions(), judge=judge, clock=world.clock)


@pytest.mark.parametrize("disturbed_s", [0.0, 12.0, 20.0])
def test_all_that_a_name_needs_is_measured_after_a_disturbance(disturbed_s):
    """Guards: 84 rounds of two experiments, and two blocks of the stage that was named."""
    made = diagnosed(disturbed_s)
    found = {name: len(each) for name, each in blocks(made).items()}
    without = {each.stage: len(blocks_of(each.coupled)) for each in made.measurement.without}
    assert min(found["device"], found["raw"], without["collate"]) >= 3, (found, without)
    assert min(found["before_collate"], without["fetch"]) >= 2, (found, without)
    assert made.measurement.cost.seconds < 62.0
