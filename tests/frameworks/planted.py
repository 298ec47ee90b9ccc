"""One slow part in a framework's pipeline, and the diagnosis that has to find it.

The slow part sleeps, several times as long as the train step, so that other load on the machine decides nothing.
"""

import time

import numpy as np
import pytest
from PIL import Image

import bottleneck
from tests.support import looks
from tests.support.looks import diagnose_until, names

BUDGETS_S = (4.0, 12.0, 30.0)
STEP_S = 0.001
SAMPLE_S = 0.008
BATCH_SIZE = 2


def train_step(batch):
    time.sleep(STEP_S)


def slow_down(samples=1):
    time.sleep(samples * SAMPLE_S)


def slowly(value):
    """A transform that takes its time and changes nothing."""
    slow_down()
    return value


def check_verdict(dataset, expected, *, cost=False, **options):
    """The slow part is named; on a busy machine after a longer diagnosis."""
    job = {"batch_size": BATCH_SIZE, "num_workers": 1, "train_step": train_step, "device": "cpu", **options}
    diagnosis = diagnose_until(_is_right(expected, cost), {"dataset": dataset, **job}, BUDGETS_S)
    looks.check_verdict(diagnosis, expected)
    assert not cost or _cost_is_right(diagnosis), str(diagnosis)
    return diagnosis


def check_cost(dataset, expected, **options):
    """The slow part is named, and its cost is right within 30 %."""
    return check_verdict(dataset, expected, cost=True, **options)


def check_cost_of_loader(loader, expected):
    """The same for a loader that exists already."""
    pipeline = bottleneck.Pipeline.from_loader(loader, train_step=train_step, device="cpu")
    diagnosis = diagnose_until(_is_right(expected, cost=True), pipeline, BUDGETS_S)
    assert _is_right(expected, cost=True)(diagnosis), str(diagnosis)


def check_is_one_stage(dataset, **options):
    """Check that the whole is named if nothing can be cut, with what the user can do about it."""
    diagnosis = check_verdict(dataset, "fetch", **options)
    reasons = {experiment.name: experiment.reason for experiment in diagnosis.experiments}
    assert "@bottleneck.stage" in reasons["before_augment"]
    return diagnosis


def _is_right(expected, cost):
    return lambda diagnosis: names(expected)(diagnosis) and (not cost or _cost_is_right(diagnosis))


def _cost_is_right(diagnosis):
    name = diagnosis.verdict.bottleneck
    (stage,) = (stage for stage in diagnosis.stages if stage.name == name)
    cost = stage.cost_s_per_batch  # None after a look so short that it was not measured
    return cost is not None and cost.estimate == pytest.approx(BATCH_SIZE * SAMPLE_S, rel=0.3)


def write_photographs(folder, count=24, size=16):
    """Small image files in two classes, as ImageFolder reads them."""
    for number in range(count):
        kind = folder / ("cat" if number % 2 else "dog")
        kind.mkdir(exist_ok=True)
        pixels = np.full((size, size, 3), 5 * number, np.uint8)
        Image.fromarray(pixels).save(kind / f"{number}.png")
    return folder
