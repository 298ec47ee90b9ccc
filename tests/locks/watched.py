"""Runs whole diagnoses in invented time, in a process of its own, and prints what a lock compares.

`python -m tests.locks.watched schedule`
"""

# isort: off
import sys

from tests.locks.world import Context, WORLD

if __name__ == "__main__":
    WORLD.take_over()

from tests.locks import jobs
from tests.locks.doors import MeasureOptions, Pipeline, judge, measure, no_trials
# isort: on

import torch


def pipeline(dataset, step_s=0.02, num_workers=2, batch_size=4, **more):
    given = {
        "dataset": dataset, "train_step": jobs.Step(step_s), "device": "cpu", "batch_size": batch_size,
        "num_workers": num_workers, "collate_fn": jobs.Collate(),
    }  # fmt: skip
    if num_workers:
        given["multiprocessing_context"] = Context()
    return Pipeline(**{**given, **more})


def diagnose(pipeline, budget_s=None, on_progress=lambda _: None):
    torch.manual_seed(0)
    options = MeasureOptions(budget_s=budget_s, restore=False)
    outcome = measure(pipeline, options, judge=judge, on_progress=on_progress, clock=WORLD.now)
    if outcome.failure is not None:
        raise outcome.failure
    return outcome.measurement


# --- the schedule ------------------------------------------------------------------------------------------

SCHEDULES = {
    "device-bound": lambda: (pipeline(jobs.Photos(0.001, 0.002), step_s=0.02), 30.0),
    "augment-bound": lambda: (pipeline(jobs.Photos(0.001, 0.006), step_s=0.008), 30.0),
    "no workers": lambda: (pipeline(jobs.Photos(0.001, 0.002), step_s=0.008, num_workers=0), 20.0),
    "slow step": lambda: (pipeline(jobs.Photos(0.1, 0.2), step_s=1.0, num_workers=1), None),
    "marked stages": lambda: (pipeline(jobs.Marked(0.001, 0.002), step_s=0.008), 30.0),
}


def schedule():
    for name, make in SCHEDULES.items():
        visits = []

        def progress(update, visits=visits):
            if update.phase in ("trying out", "measuring"):
                visits.append((update.round, update.experiment))

        yield f"# {name}"
        found = diagnose(*make(), progress)
        for round_ in dict.fromkeys(number for number, _ in visits):
            order = [experiment for number, experiment in visits if number == round_]
            yield f"round {round_}: {', '.join(order)}"
        for arm, blocks in arms_of(found):
            yield f"{arm}: {' '.join(f'{b.round}:{b.batches}' for b in blocks)}"
        yield f"in all: {found.cost.batches} batches, {found.cost.samples} samples, {found.cost.seconds:.2f} s"


def arms_of(found):
    for experiment in found.experiments:
        for kind in ("coupled", "drained", "workers", "serving"):
            if getattr(experiment, kind):
                yield f"{experiment.name} {kind}", getattr(experiment, kind)
    for without in found.without:
        for kind in ("coupled", "workers"):
            if getattr(without, kind):
                yield f"without {without.stage} {kind}", getattr(without, kind)


if __name__ == "__main__":
    no_trials()
    for line in globals()[sys.argv[1]]():
        print(line)
