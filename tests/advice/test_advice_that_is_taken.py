"""Advice of whole diagnoses: what is advised brings what it promises, and what costs nothing is left alone."""

import re
import time

import pytest
import torch
from torch.utils.data import Dataset

import bottleneck
from bottleneck.job.settings import parse_settings
from tests.support.looks import look_until

pytestmark = pytest.mark.integration

SAMPLE_S = 0.005
BATCH_SIZE = 4


class Planted(Dataset):
    """Loading and augmentation, of which the augmentation may wait."""

    def __init__(self, augment_s):
        self.augment_s = augment_s

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return self.augment(self.load(index))

    def load(self, index):
        return torch.full((8,), float(index))

    def augment(self, sample):
        if self.augment_s:
            time.sleep(self.augment_s)
        return sample + 1.0


def pipeline(augment_s, step_s):
    return bottleneck.Pipeline(
        dataset=Planted(augment_s),
        train_step=lambda batch: time.sleep(step_s),
        device="cpu",
        batch_size=BATCH_SIZE,
        num_workers=1,
        persistent_workers=True,
    )


def samples_per_s(diagnosis):
    return next(e.coupled.samples_per_s for e in diagnosis.experiments if e.name == "raw")


def is_clear(diagnosis):
    """Whether the planted stage is named, and its gain known well enough to be held against what comes of it."""
    named = [stage for stage in diagnosis.stages if stage.name == diagnosis.verdict.bottleneck == "augment"]
    return any(stage.gain_if_free and stage.gain_if_free.low > 2 for stage in named)


def test_advice_on_a_planted_wait_brings_what_it_promises_when_it_is_taken():
    job = pipeline(augment_s=SAMPLE_S, step_s=0.002)
    before = look_until(is_clear, lambda budget_s: bottleneck.diagnose(job, budget=budget_s), (10.0, 20.0, 40.0))

    assert before.verdict.bottleneck == "augment", before.verdict.sentence
    assert {advice.stage for advice in before.advice} <= {None, "augment"}
    waits = next(advice for advice in before.advice if advice.id == "wait-less")
    assert waits.gain_basis == "measured"
    assert waits.gain.estimate > 2

    setting = re.search(r"--set (num_workers=\d+)", waits.how).group(1)
    after = bottleneck.diagnose(job.replace(**parse_settings([setting])), budget=6)
    gained = samples_per_s(after) / samples_per_s(before)
    assert 1.3 < gained < 1.2 * waits.gain.high


def test_a_pipeline_that_its_device_holds_gets_no_advice_about_its_loader():
    job = pipeline(augment_s=0.0, step_s=0.2)
    diagnosis = look_until(
        lambda diagnosis: diagnosis.verdict.state == "device_bound",
        lambda budget_s: bottleneck.diagnose(job, budget=budget_s),
        (12.0, 25.0, 40.0),
    )

    assert diagnosis.verdict.state == "device_bound", diagnosis.verdict.sentence
    assert {advice.stage for advice in diagnosis.advice} <= {None, "compute"}
    assert not {"more-workers", "use-workers"} & {advice.id for advice in diagnosis.advice}
