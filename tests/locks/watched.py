"""Runs whole diagnoses in invented time, in a separate process, and prints what a lock compares.

`python -m tests.locks.watched schedule`
"""

# isort: off
import sys
from pathlib import Path

from tests.locks.world import WORLD

if __name__ == "__main__":
    WORLD.take_over()

from tests.locks import decisions, jobs
from tests.locks.doors import analyse
from tests.locks.simulated import arms_of, at_once, diagnose, pipeline
# isort: on

import itertools
import json
from collections import Counter

import torch
from torch.utils.data import ConcatDataset, StackDataset, Subset

import bottleneck

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


# --- slow batches ------------------------------------------------------------------------------------------

SLOW_S, SLOW_STEP_S, SLOW_SIZE = 1.25, 0.138, 32


def slow(seeds=1):
    """The job that GPUs have, replayed: a line for each diagnosis, as JSON."""
    WORLD.preempts = True
    for workers, cv, budget_s, seed in itertools.product((3, 8, 16), (0.05, 0.15), (28.0, 55.0), range(seeds)):
        sample_s = SLOW_S / SLOW_SIZE
        dataset = jobs.Uneven(0.4 * sample_s, 0.6 * sample_s, cv, SLOW_SIZE, seed)
        job = pipeline(dataset, SLOW_STEP_S, workers, SLOW_SIZE)
        began_s, told = WORLD.now(), {}

        def progress(update, began_s=began_s, told=told):
            if update.state:
                told.setdefault("state_s", WORLD.now() - began_s)

        found = analyse(diagnose(job, budget_s, progress))
        efficiency, named = found.verdict.efficiency, found.verdict.bottleneck
        gain = next((s.gain_if_free for s in found.stages if s.name == named and s.gain_if_free), None)
        rounds = [len(arm) for name, arm in arms_of(found) if name in ("device coupled", "raw coupled")]
        yield json.dumps({
            "workers": workers, "cv": cv, "budget_s": budget_s, "state": found.verdict.state, "named": named,
            "efficiency": [efficiency.estimate, efficiency.low, efficiency.high], "rounds": min(rounds),
            "gain": gain and [gain.estimate, gain.low, gain.high], "took_s": WORLD.now() - began_s, **told,
        })  # fmt: skip


# --- calls of bottleneck, batch by batch -------------------------------------------------------------------

OURS = str(Path(bottleneck.__file__).parent)
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")
"""Calls of their own until Python 3.11."""


class Watch:
    """Counts our calls and keeps the user's functions that ran, experiment by experiment."""

    def __init__(self):
        self.experiment = ""
        self.in_main, self.in_worker = 0, 0
        self._before = None
        self._steps = []
        self.calls_of_main, self.calls_of_worker, self.ran = {}, {}, {}
        WORLD.begin_step, WORLD.begin_batch, WORLD.end_batch = self._begin_step, self._begin_batch, self._end_batch

    def visits(self, update):
        """Called before each visit."""
        # A block is the end of a visit, and what comes before its first step is more than a batch.
        if self._steps:
            self.calls_of_main.setdefault(self.experiment, []).extend(self._steps[len(self._steps) // 2 :])
        self._steps, self._before = [], None
        self.experiment = update.experiment if update.phase == "measuring" else ""

    def count(self, frame, event, arg):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS) and code.co_name not in INLINED:
            if WORLD.running is None:
                self.in_main += 1
            else:
                self.in_worker += 1

    def _begin_step(self):
        if self._before is not None:
            self._steps.append(self.in_main - self._before)
        self._before = self.in_main
        if not WORLD.workers:
            self._keep_ran()

    def _begin_batch(self):
        self.in_worker = 0
        WORLD.noted.clear()

    def _end_batch(self):
        self.calls_of_worker.setdefault(self.experiment, []).append(self.in_worker)
        self._keep_ran()

    def _keep_ran(self):
        self.ran.setdefault(self.experiment, []).append(" ".join(WORLD.noted))
        WORLD.noted.clear()


def usual(found):
    """The commonest of each experiment: the first batches after a switch are others."""
    return {experiment: Counter(each).most_common(1)[0][0] for experiment, each in sorted(found.items()) if experiment}


COUNTED = {
    "cut at attributes": lambda: pipeline(jobs.Folder(), 0.02),
    "marked": lambda: pipeline(jobs.Marked(), 0.02),
    "a stream": lambda: pipeline(jobs.Stream(), 0.02),
    "no workers": lambda: pipeline(jobs.Folder(), 0.02, num_workers=0),
}


def calls():
    for name, make in COUNTED.items():
        yield f"# {name}"
        watch = Watch()
        sys.setprofile(watch.count)
        try:
            diagnose(make(), 12.0, watch.visits, at_once)
        finally:
            sys.setprofile(None)
        for experiment, number in usual(watch.calls_of_main).items():
            yield f"main process, {experiment}: {number}"
        for experiment, number in usual(watch.calls_of_worker).items():
            yield f"worker, {experiment}: {number}"


# --- what runs of the user's -------------------------------------------------------------------------------

KINDS = {
    "methods": lambda: pipeline(jobs.Photos(), batch_size=2),
    "attributes": lambda: pipeline(jobs.Folder(), batch_size=2),
    "code behind the augmentation": lambda: pipeline(jobs.Finished(), batch_size=2),
    "code in front of it": lambda: pipeline(jobs.Inline(), batch_size=2),
    "code around it": lambda: pipeline(jobs.Tail(), batch_size=2),
    "nothing to cut": lambda: pipeline(jobs.Opaque(), batch_size=2),
    "items by the batch": lambda: pipeline(jobs.Batched(), batch_size=2),
    "a subset": lambda: pipeline(Subset(jobs.Folder(), range(5, 50_000)), batch_size=2),
    "a concatenation": lambda: pipeline(ConcatDataset([jobs.Photos(), jobs.Photos()]), batch_size=2),
    "a stack": lambda: pipeline(StackDataset(jobs.Photos(), jobs.Photos()), batch_size=2),
    "a list": lambda: pipeline([torch.full((4,), float(number)) for number in range(1000)], batch_size=2),
    "lengths that vary": lambda: pipeline(jobs.Lengths(), batch_size=4),
    "marked": lambda: pipeline(jobs.Marked(), batch_size=2),
    "marked, one in another": lambda: pipeline(jobs.Nested(), batch_size=2),
    "marked in the collation": lambda: pipeline(jobs.Photos(), batch_size=2, collate_fn=jobs.MarkedCollate()),
    "a stream": lambda: pipeline(jobs.Stream(), batch_size=2),
    "a short stream": lambda: pipeline(jobs.Stream(50), batch_size=2),
    "a marked stream": lambda: pipeline(jobs.MarkedStream(), batch_size=2),
    "samples without a batch": lambda: pipeline(jobs.Photos(), batch_size=None, collate_fn=jobs.collate_one),
    "out of order": lambda: pipeline(jobs.Photos(), batch_size=2, shuffle=True, in_order=False),
    "no workers": lambda: pipeline(jobs.Folder(), batch_size=2, num_workers=0),
    "marked, no workers": lambda: pipeline(jobs.Marked(), batch_size=2, num_workers=0),
}


def stages():
    for name, make in KINDS.items():
        yield f"# {name}"
        watch = Watch()
        diagnose(make(), 24.0, watch.visits, at_once)
        found = usual(watch.ran)
        for ran in dict.fromkeys(found.values()):
            yield f"{ran or 'nothing'}: {', '.join(each for each in found if found[each] == ran)}"


PRINTED = {
    "schedule": schedule,
    "slow": slow,
    "calls": calls,
    "stages": stages,
    "ranks": decisions.ranks,
    "tunings": decisions.tunings,
    "scripts": decisions.scripts,
}

if __name__ == "__main__":
    for line in PRINTED[sys.argv[1]](*map(int, sys.argv[2:])):
        print(line)
