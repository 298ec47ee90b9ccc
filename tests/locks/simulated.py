"""Whole diagnoses in invented time, and their summaries; `WORLD` has taken over before this is imported."""

from dataclasses import replace

import torch

from tests.locks import jobs
from tests.locks.doors import MeasureOptions, Pipeline, judge, measure
from tests.locks.world import WORLD, Context


def pipeline(dataset, step_s=0.02, num_workers=2, batch_size=4, **more):
    given = {
        "dataset": dataset, "train_step": jobs.Step(step_s), "device": "cpu", "batch_size": batch_size,
        "num_workers": num_workers, "collate_fn": jobs.Collate(),
    }  # fmt: skip
    if num_workers:
        given["multiprocessing_context"] = Context()
    return Pipeline(**{**given, **more})


def at_once(measurement):
    """The first rounds are enough."""
    return replace(
        judge(measurement), state="device_bound", precise=True, costs_precise=True, named=True, settled=False
    )


def diagnose(pipeline, budget_s=None, on_progress=lambda _: None, judge=judge):
    torch.manual_seed(0)
    options = MeasureOptions(budget_s=budget_s, restore=False)
    outcome = measure(pipeline, options, judge=judge, on_progress=on_progress, clock=WORLD.now)
    if outcome.failure is not None:
        raise outcome.failure
    return outcome.measurement


def arms_of(found):
    for experiment in found.experiments:
        for kind in ("coupled", "drained", "workers", "serving"):
            if getattr(experiment, kind):
                yield f"{experiment.name} {kind}", getattr(experiment, kind).blocks
    for without in found.without:
        for kind in ("coupled", "workers"):
            if getattr(without, kind):
                yield f"without {without.stage} {kind}", getattr(without, kind).blocks
