"""A state that other parts of a script's loop make unimportant is pursued only on request; in invented time."""

from dataclasses import replace

import pytest
import torch
from torch.utils.data import Dataset

from bottleneck.measure.options import MeasureOptions
from bottleneck.results.records import NO_JUDGEMENT
from tests.support.clock import FakeClock
from tests.support.sessions import blocks, pipeline_of, run

STEP_S, LOAD_S = 0.02, 0.0005


class Samples(Dataset):
    def __init__(self, clock):
        self.clock = clock

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        self.clock.advance(LOAD_S)
        return torch.zeros(2) + index


def elsewhere(_):
    return replace(NO_JUDGEMENT, precise=False, is_elsewhere=True)


@pytest.mark.parametrize(("budget_s", "goes_on"), [(None, False), (12.0, True)])
def test_a_given_budget_is_spent_on_it(budget_s, goes_on):
    clock = FakeClock(50.0, per_reading_s=1e-5)
    job = pipeline_of(Samples(clock), train_step=lambda _: clock.advance(STEP_S), num_workers=0, batch_size=4)
    made = run(job, MeasureOptions(budget_s=budget_s), judge=elsewhere, clock=clock)
    assert (len(blocks(made)["raw"]) > 3) == goes_on
