"""Decisions in invented time: by two ranks in step, by tunings, and for the loops of scripts."""

import gc
from collections import Counter
from contextlib import suppress

import torch
from torch.utils.data import DataLoader

import bottleneck
from bottleneck import Change, MeasurementError
from tests.locks import jobs
from tests.locks.doors import (
    Judgement,
    MeasureOptions,
    Pipeline,
    after_rounds,
    analysing,
    judge,
    limits,
    measure,
    session,
)
from tests.locks.ranks import RANKS, SharingStep
from tests.locks.simulated import arms_of, pipeline
from tests.locks.world import WORLD

# --- two ranks ---------------------------------------------------------------------------------------------

TWO_RANKS = {
    "one loads slowly": lambda rank: pipeline(
        jobs.Photos(0.002, 0.004 * (1 + 3 * rank)), train_step=SharingStep(0.008)
    ),
    "both step slowly": lambda rank: pipeline(
        jobs.Photos(0.001, 0.002), train_step=SharingStep(0.02 + 0.01 * rank), num_workers=1 + rank
    ),
}


def ranks():
    RANKS.take_over()
    for name, make in TWO_RANKS.items():
        yield f"# {name}"
        visits = []

        def diagnose(rank, make=make, visits=visits):
            def progress(update):
                if update.phase in ("trying out", "measuring"):
                    visits.append((update.round, update.experiment))

            options = MeasureOptions(budget_s=12.0, restore=False)
            outcome = measure(make(rank), options, judge=judge, on_progress=progress, clock=WORLD.now)
            if outcome.failure is not None:
                raise outcome.failure
            return outcome

        leading, following = RANKS.run(2, diagnose)
        for round_ in dict.fromkeys(number for number, _ in visits):
            yield f"round {round_}: {', '.join(experiment for number, experiment in visits if number == round_)}"
        for rank, outcome in enumerate((leading, following)):
            for arm, blocks in arms_of(outcome.measurement):
                yield f"rank {rank}, {arm}: {' '.join(f'{b.round}:{b.batches}' for b in blocks)}"
            cost = outcome.measurement.cost
            yield f"rank {rank}, in all: {cost.batches} batches, {cost.samples} samples, {cost.seconds:.2f} s"
        for trial in leading.rank_trials.trials:
            yield f"{trial.name} of rank {trial.rank}: {' '.join(f'{b.round}:{b.batches}' for b in trial.blocks)}"
        yield f"freed: {leading.rank_trials.freed}"


# --- tunings -----------------------------------------------------------------------------------------------


class QuickStep(jobs.Step):
    """A step that a change has made."""


def quicker(pipeline):
    return pipeline.replace(train_step=QuickStep(pipeline.train_step.seconds / 3))


QUICKER = Change("quicker", quicker, on="step", line="step = quicker(step)")
BROKEN = Change("broken", lambda pipeline: pipeline.replace(train_step=jobs.broken), on="step")


def on_rank_0(pipeline):
    if RANKS.present.number:
        raise MemoryError("no room for it")
    return pipeline.replace(batch_size=8)


ONE_RANK_FAILS = Change("on_rank_0", on_rank_0, on="loader", line="batch_size=8")
LOADER = ("num_workers", "prefetch_factor", "pin_memory")

TUNINGS = {
    "too few workers": ((jobs.Photos(0.01, 0.03), 0.03, 1), LOADER),
    "a slow step": ((jobs.Photos(0.002, 0.002), 0.09, 2), (*LOADER, QUICKER, BROKEN)),
    "no workers": ((jobs.Photos(0.01, 0.02), 0.03, 0), LOADER),
    "two that pay together": ((jobs.Photos(0.01, 0.04), 0.06, 4), (*LOADER, QUICKER)),
    "more workers than cores": ((jobs.Photos(0.1, 0.1), 0.04, 8), LOADER),
    "short epochs": ((jobs.Few(0.01, 0.01), 0.03, 4), ("num_workers", "persistent_workers")),
}


def tunings():
    be_the_machine()
    for name, ((dataset, step_s, workers), changes) in TUNINGS.items():
        yield f"# {name}"
        WORLD.computing_share = 0.1 if name == "more workers than cores" else 1.0
        job = plain_pipeline(dataset, jobs.Step(step_s), workers)
        yield from decided(bottleneck.tune(job, try_=changes, budget=120.0))
    yield from tunings_of_ranks()


TUNINGS_OF_RANKS = {
    "one loads slowly": lambda rank: ((jobs.Photos(0.01, 0.01 + 0.02 * rank), SharingStep(0.03), 1), LOADER),
    "one steps slowly, and cannot do all": lambda rank: (
        (jobs.Photos(0.01, 0.01), jobs.Step(0.04 + 0.02 * rank), 1),
        ("num_workers", QUICKER, ONE_RANK_FAILS),
    ),
}


def tunings_of_ranks():
    RANKS.take_over()
    for name, make in TUNINGS_OF_RANKS.items():
        yield f"# two ranks, {name}"

        def tune(rank, make=make):
            (dataset, step, workers), changes = make(rank)
            job = plain_pipeline(dataset, step, workers)
            return list(decided(bottleneck.tune(job, try_=changes, budget=120.0)))

        leading, following = RANKS.run(2, tune)
        yield from leading
        yield from ("rank 1, " + line for line in following if line not in leading)


def be_the_machine():
    """Have the same cores everywhere. Of diagnoses the first rounds are enough; no source is read, no step traced."""
    WORLD.be_the_machine()
    gc.freeze()  # imported objects would be searched each time that a lane is closed
    limits.read_text = lambda path: None
    session.find_places = lambda loader, transforms: ()
    after_rounds.trace = lambda *_, **__: None
    analysing.judge = lambda measurement: Judgement("device_bound", None, precise=True)


def plain_pipeline(dataset, step, workers):
    return Pipeline(
        dataset=dataset, train_step=step, device="cpu", batch_size=4, num_workers=workers, collate_fn=jobs.Collate()
    )


def decided(tuning):
    for trial in tuning.trials:
        gain = "" if trial.gain is None else f", {trial.gain.low:.3f} {trial.gain.estimate:.3f} {trial.gain.high:.3f}"
        batches = " ".join(f"{pair.base.batches}:{pair.changed.batches}" for pair in trial.pairs)
        on_top_of = " + ".join(trial.on_top_of) or "nothing"
        yield f"{trial.setting} on {on_top_of}: {trial.outcome}{gain}; {batches or 'no pairs'}"
    for rung in tuning.ladder:
        batches = " ".join(str(block.batches) for block in rung.rate.blocks)
        yield f"rung {rung.label}: {rung.rate.seconds_per_batch:.5f} s a batch; {batches}"
    yield from tuning.lines
    for when, found in (("before", tuning.before), ("after", tuning.after)):
        if found is not None:
            yield f"{when}: {found.verdict.state}, {found.verdict.bottleneck}"
    yield f"in all: {tuning.seconds:.2f} s"


# --- scripts -----------------------------------------------------------------------------------------------


class ByHand:
    """Batches that no DataLoader makes."""

    def __iter__(self):
        while True:
            WORLD.spend(0.03)
            yield torch.zeros(4, 4), torch.zeros(4)


class Script:
    """A training loop without a description.

    Args:
        loaders: What it takes its batches from, one of each for a step.
        step_s: What a step takes it.
        gathers: Batches for each step of the optimizer.
        most: Batches after which it ends.
    """

    def __init__(self, *loaders, step_s, gathers=1, most=10_000):
        self.loaders, self.step_s, self.gathers, self.most = loaders, step_s, gathers, most
        self.model, self.batches = torch.nn.Linear(4, 1), 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def run(self):
        while True:
            for (images, _), *_ in zip(*self.loaders, strict=False):
                if self.batches == self.most:
                    return
                self.train(images)

    def train(self, images):
        self.batches += 1
        WORLD.spend(self.step_s)
        self.model(images).mean().backward()
        if not self.batches % self.gathers:
            self.optimizer.step()
            self.optimizer.zero_grad()


def loader(dataset, workers=2, **more):
    return DataLoader(dataset, batch_size=4, num_workers=workers, collate_fn=jobs.Collate(), **more)


SCRIPTS = {
    "slow loading": lambda: Script(loader(jobs.Photos(0.004, 0.012)), step_s=0.01),
    "a slow step": lambda: Script(loader(jobs.Photos(0.001, 0.002)), step_s=0.03),
    "no workers": lambda: Script(loader(jobs.Photos(0.002, 0.004), workers=0), step_s=0.02),
    "gathered gradients": lambda: Script(loader(jobs.Photos(0.002, 0.008)), step_s=0.01, gathers=3),
    "short epochs": lambda: Script(loader(jobs.Few(0.002, 0.004)), step_s=0.02),
    "two loaders": lambda: Script(loader(jobs.Photos(0.002, 0.004)), loader(jobs.Photos()), step_s=0.02),
    "batches by hand": lambda: Script(bottleneck.watch(ByHand()), step_s=0.02),
    "a short script": lambda: Script(loader(jobs.Photos(0.002, 0.004)), step_s=0.02, most=60),
    "no training": lambda: Script(loader(jobs.Photos(0.002, 0.004)), step_s=0.02, gathers=100, most=60),
}


def scripts():
    be_the_machine()
    for name, make in SCRIPTS.items():
        torch.manual_seed(0)
        yield f"# {name}"
        script, told = make(), []
        try:
            with bottleneck.diagnosing(budget=15.0, progress=told.append) as run:
                script.run()
        except MeasurementError as error:
            yield f"failure: {error}"
        phases = Counter(update.phase for update in told)
        yield f"phases: {', '.join(f'{phase} {count}' for phase, count in phases.items()) or 'none'}"
        yield f"{script.batches} batches trained on"
        with suppress(MeasurementError):
            yield from diagnosed(run.diagnosis)


def diagnosed(found):
    yield f"job: {', '.join(f'{key}={found.pipeline.get(key)}' for key in ('source', 'num_workers', 'batch_size'))}"
    yield f"verdict: {found.verdict.state}, {found.verdict.bottleneck}"
    numbers = {name: value for name, value in vars(found.evidence.loop).items() if isinstance(value, int | float)}
    seen = {name: value for name, value in numbers.items() if value}
    yield f"loop: {', '.join(f'{name} {rounded(value)}' for name, value in seen.items())}"
    yield f"warnings: {', '.join(warning.id for warning in found.warnings)}"
    for arm, blocks in arms_of(found):
        yield f"{arm}: {' '.join(f'{b.round}:{b.batches}' for b in blocks)}"
    yield f"in all: {found.cost.batches} batches, {found.cost.seconds:.2f} s"


def rounded(value):
    return f"{value:.4g}" if isinstance(value, float) else value
