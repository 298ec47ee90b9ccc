"""Small jobs and their diagnoses, with workers or in invented time."""

import psutil
import pytest

from bottleneck.job.pipeline import Pipeline
from bottleneck.measure import session
from bottleneck.measure.entry import measure
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.rounds import schedule, turns
from bottleneck.results.records import Judgement, blocks_of
from tests.support.clock import FakeClock
from tests.support.datasets import Photos

QUICK = MeasureOptions(budget_s=4.0)
MIN_BLOCK_S, MIN_ROUNDS = 0.03, 2
"""Limits of a diagnosis in real time, of which a test checks the order and the end, not the precision."""
PRECISE = Judgement("device_bound", None, precise=True)
NAMED = Judgement("input_bound", None, precise=False)
UNDECIDED = Judgement("undecided", None, precise=False)


_HELPERS = set()
"""Python's own helper processes of earlier tests, which stay by design."""


def known_helpers():
    _HELPERS.clear()
    _HELPERS.update(psutil.Process().children())


def workers_left():
    return set(psutil.Process().children()) - _HELPERS


def pipeline_of(dataset=None, **options):
    given = {"dataset": dataset or Photos(), "train_step": lambda batch: None, "batch_size": 4, "num_workers": 1}
    return Pipeline(**{**given, "device": "cpu", **options})


def run(pipeline, options=QUICK, judge=lambda _: PRECISE, on_progress=lambda _: None, min_rounds=MIN_ROUNDS, **more):
    with pytest.MonkeyPatch.context() as patch:
        if "clock" in more:  # observing would take uncounted time
            patch.setattr(session, "MAX_OBSERVING_S", 0.2)
            patch.setattr(turns, "allowed_cpu_times", list)  # other virtual machines steal real time, not invented
        else:
            patch.setattr(schedule, "MIN_BLOCK_S", MIN_BLOCK_S)
            patch.setattr(schedule, "MIN_ROUNDS", min_rounds)
        return measure(pipeline, options, judge=judge, on_progress=on_progress, **more)


def blocks(outcome):
    return {e.name: blocks_of(e.coupled) for e in outcome.measurement.experiments}


def warnings_of(outcome):
    return {warning.id: warning.message for warning in outcome.measurement.warnings}


def invented_time():
    """Each reading takes some milliseconds, as if the job did; a step is read five times."""
    return FakeClock(50.0, per_reading_s=3e-3)


def run_simulated(step_s, options, judge=lambda _: UNDECIDED, dataset=None, **more):
    """A diagnosis without workers, in invented time."""
    clock = invented_time()
    pipeline = pipeline_of(dataset, train_step=clock.step(step_s), num_workers=0)
    return run(pipeline, options, judge, clock=clock, **more)
