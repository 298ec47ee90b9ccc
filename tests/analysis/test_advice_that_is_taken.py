"""Advice of whole diagnoses keeps its promises, and leaves stages alone that cost nothing."""

import re
import time

import pytest

import bottleneck
from bottleneck.job.target import parse_settings
from tests.support.datasets import Photos
from tests.support.looks import diagnose_until

pytestmark = pytest.mark.integration

SAMPLE_S = 0.005
BATCH_SIZE = 4


class Planted(Photos):
    """Its augmentation may wait."""

    def __init__(self, augment_s):
        self.augment_s = augment_s

    def __len__(self):
        return 100_000

    def augment(self, sample):
        if self.augment_s:
            time.sleep(self.augment_s)
        return super().augment(sample)


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
    """Return True if the planted stage is named, and its gain known well enough to compare it with the real one."""
    named = [stage for stage in diagnosis.stages if stage.name == diagnosis.verdict.bottleneck == "augment"]
    return any(stage.gain_if_free and stage.gain_if_free.low > 2 for stage in named)


def is_clear_and_tried(diagnosis):
    """Return True if more workers were tried, too: a budget may leave no time for that."""
    tried = [advice for advice in diagnosis.advice if advice.id == "more-workers" and advice.gain_basis == "measured"]
    return bool(tried) and is_clear(diagnosis)


def test_advice_on_a_planted_wait_brings_what_it_promises_when_it_is_taken():
    job = pipeline(augment_s=SAMPLE_S, step_s=0.002)
    before = diagnose_until(is_clear_and_tried, job, (12.0, 24.0, 40.0))

    assert before.verdict.bottleneck == "augment", before.verdict.sentence
    assert {advice.stage for advice in before.advice} <= {None, "augment"}
    given = {advice.id: advice for advice in before.advice}
    more = given["more-workers"]
    assert more.gain_basis == "measured"
    assert more.gain.estimate > 2
    assert "--set num_workers=" in given["costliest-line"].how

    setting = re.search(r"--set (num_workers=\d+)", more.how).group(1)
    after = bottleneck.diagnose(job.replace(**parse_settings([setting])), budget=6)
    gained = samples_per_s(after) / samples_per_s(before)
    assert max(1.3, 0.6 * more.gain.estimate) < gained < 1.2 * more.gain.high


def test_a_pipeline_that_its_device_holds_gets_no_advice_about_its_loader():
    job = pipeline(augment_s=0.0, step_s=0.2)
    diagnosis = diagnose_until(lambda found: found.verdict.state == "device_bound", job, (12.0, 25.0, 40.0))

    assert diagnosis.verdict.state == "device_bound", diagnosis.verdict.sentence
    assert {advice.stage for advice in diagnosis.advice} <= {None, "compute"}
    assert not {"more-workers", "use-workers"} & {advice.id for advice in diagnosis.advice}
