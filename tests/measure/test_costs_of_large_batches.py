"""The cost of making large batches: a copy of one takes about as long, so each copy too many shows."""

import time

import pytest
import torch

from bottleneck.analysis.analyse import analyse
from bottleneck.measure.options import MeasureOptions
from tests.support.datasets import Photos
from tests.support.sessions import known_helpers, pipeline_of, run

known = pytest.fixture(autouse=True)(known_helpers)


def on_canvas(samples):
    # Over 32 MiB: memory that is given back to the system, and has to be mapped again each time.
    batch = torch.full((len(samples), 600_000), 0.5)
    for canvas, (image, _) in zip(batch, samples, strict=True):
        canvas[: len(image)] = image
    return batch, torch.tensor([label for _, label in samples])


def train_step(batch):
    time.sleep(2e-3)


@pytest.mark.integration
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_large_collation_costs_what_a_clock_around_it_shows(num_workers):
    # Guards: a copy of the batch was served in its place: a tenth of it was found, or less than nothing.
    fields = {"batch_size": 16, "num_workers": num_workers, "collate_fn": on_canvas, "train_step": train_step}
    measured = run(pipeline_of(Photos(), **fields), MeasureOptions(budget_s=25.0)).measurement
    (found,) = (stage.cost_s_per_batch for stage in analyse(measured).stages if stage.name == "collate")
    (clock_s,) = (span.wall_s_per_batch for span in measured.stages if span.name == "collate")
    assert found.low / 1.5 < clock_s < 1.5 * found.high
