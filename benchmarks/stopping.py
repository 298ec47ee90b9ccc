"""The share of wrong answers at which the stopping rule ends a diagnosis, over simulated jobs with a known truth.

A simulated job is a queue: some workers load, augment and collate, the main process takes a batch and trains. Its
blocks have what those of the bench have: noise of 1 to 6 % a block, drift of the machine from round to round and within
one, and now and then a block that another process disturbed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.checks import Check, markdown_table
from bottleneck.analysis.analyse import judge
from bottleneck.analysis.costs import Costs
from bottleneck.analysis.readings import read
from bottleneck.analysis.settings import LOSS_CLEARLY_SMALL, LOSS_WORTH_TOUCHING, MARGIN, THIS_TOOL
from bottleneck.analysis.verdict import Answer, find_answer
from bottleneck.results.evidence import Evidence
from bottleneck.results.records import (
    NO_VERDICT,
    SCHEMA_VERSION,
    Block,
    Cost,
    Experiment,
    Rate,
    Result,
    Stage,
    Without,
)

JOBS, JOBS_QUICK = 10_000, 400
MAX_ROUNDS = 12
MAX_WRONG, MAX_UNDECIDED = 0.01, 0.10
CLEAR_LOSS = 0.15
_BATCHES, _BATCH_SIZE = 10, 16
_RUNGS = ("device", "after_collate", "before_collate", "before_augment", "raw")
_STAGES = ("compute", "handoff", "collate", "augment", "load")
_SHARPNESS = 8.0
"""Sharpness of the edge between a loader that keeps up and one that does not: a queue of uneven batches rounds it."""
_NEARLY = 1.05
"""A name is right if the job gains as much without it as without the best one, up to this."""


@dataclass(frozen=True)
class Job:
    """Seconds per batch: of the train step, of the hand-over in the main process, and of stages in one worker."""

    step: float
    handoff: float
    stages: Mapping[str, float]
    workers: int
    noise: float
    drift: float

    def coupled(self, without: str = "", stages: tuple[str, ...] = ("load", "augment", "collate")) -> float:
        """Seconds per batch with the train step."""
        main = self.step + (0.0 if without == "handoff" else self.handoff)
        loader = self.alone(without, stages)
        return float((main**_SHARPNESS + loader**_SHARPNESS) ** (1 / _SHARPNESS))

    def alone(self, without: str = "", stages: tuple[str, ...] = ("load", "augment", "collate")) -> float:
        """Seconds per batch of all workers together."""
        return sum(self.stages[name] for name in stages if name != without) / self.workers

    @property
    def loss(self) -> float:
        return 1 - self.step / self.coupled()

    def gain(self, stage: str) -> float:
        return self.coupled() / self.coupled(stage)

    @property
    def right_names(self) -> set[str]:
        """The stages without which the job gains the most, or nearly that."""
        gains = {stage: self.gain(stage) for stage in _STAGES[1:]}
        return {stage for stage, gain in gains.items() if gain * _NEARLY >= max(gains.values()) and gain > MARGIN}


def draw_job(random: np.random.Generator) -> Job:
    """A job that loses from nothing to nine tenths."""
    step = 0.012
    shares = random.dirichlet((1.0, 1.0, 0.5))
    workers = int(random.integers(1, 9))
    loader = step * float(np.exp(random.uniform(np.log(0.3), np.log(6.0)))) * workers
    return Job(
        step=step,
        handoff=step * float(random.choice([0.005, 0.02, 0.1, 0.5])),
        stages=dict(zip(("load", "augment", "collate"), (loader * shares).tolist(), strict=True)),
        workers=workers,
        noise=float(np.exp(random.uniform(np.log(0.01), np.log(0.06)))),
        drift=float(random.uniform(0.0, 0.08)),
    )


class Blocks:
    """Blocks of a job, made on request."""

    def __init__(self, job: Job, random: np.random.Generator) -> None:
        self._job, self._random = job, random
        self._speeds = np.exp(random.normal(0.0, job.drift, MAX_ROUNDS))

    def rate(self, seconds_per_batch: float) -> Rate | None:
        """The blocks of all rounds of an arm."""
        random, job = self._random, self._job
        noise = np.exp(random.normal(0.0, job.noise, MAX_ROUNDS) + random.normal(0.0, job.drift / 4, MAX_ROUNDS))
        disturbed = 1 + (random.random(MAX_ROUNDS) < 0.02) * random.exponential(0.3, MAX_ROUNDS)
        seconds = seconds_per_batch * _BATCHES * self._speeds * noise * disturbed
        return Rate.of(
            tuple(Block(n, _BATCH_SIZE * _BATCHES, float(s), _BATCHES, float(s) / 2) for n, s in enumerate(seconds))
        )


def measure(job: Job, random: np.random.Generator) -> Result:
    """All rounds of a job that there may be."""
    blocks = Blocks(job, random)
    inside = {
        "device": (),
        "after_collate": (),
        "before_collate": ("collate",),
        "before_augment": ("collate", "augment"),
        "raw": ("collate", "augment", "load"),
    }
    coupled = {name: job.coupled(stages=stages) for name, stages in inside.items()} | {"device": job.step}
    alone = blocks.rate(job.alone())
    return Result(
        schema_version=SCHEMA_VERSION, tool=THIS_TOOL, verdict=NO_VERDICT, advice=(), created="2025-01-01T00:00:00Z",
        environment={}, pipeline={"num_workers": job.workers},
        experiments=tuple(
            Experiment(
                name, True, None, blocks.rate(seconds), blocks.rate(job.handoff) if name == "after_collate" else None,
                workers=alone if name == "raw" else None,
            )
            for name, seconds in coupled.items()
        ),
        without=(
            Without("handoff", blocks.rate(job.coupled("handoff"))),
            *(Without(name, blocks.rate(job.coupled(name)), blocks.rate(job.alone(name))) for name in _STAGES[2:]),
        ),
        stages=tuple(map(Stage.between, _STAGES, (None, *_RUNGS[:-1]), _RUNGS)),
        evidence=Evidence(), warnings=(), cost=Cost(seconds=30.0, batches=1, samples=1, cache_bytes=0),
    )  # fmt: skip


def first_rounds(whole: Result, rounds: int) -> Result:
    """Return the measurements after some rounds."""

    def cut(rate: Rate | None) -> Rate | None:
        return None if rate is None else Rate.of(rate.blocks[:rounds])

    return replace(
        whole,
        experiments=tuple(
            replace(e, coupled=cut(e.coupled), drained=cut(e.drained), workers=cut(e.workers))
            for e in whole.experiments
        ),
        without=tuple(replace(w, coupled=cut(w.coupled), workers=cut(w.workers)) for w in whole.without),
    )


def diagnose(job: Job, random: np.random.Generator) -> tuple[Answer, int]:
    """The answer that a diagnosis of the job ends with, and the rounds that it took."""
    whole = measure(job, random)
    rounds = next((n for n in range(3, MAX_ROUNDS) if judge(first_rounds(whole, n)).settled), MAX_ROUNDS)
    measured = first_rounds(whole, rounds)
    readings = read(measured)
    return find_answer(measured, readings, Costs(readings)), rounds


@dataclass
class Tally:
    """Outcomes of the simulated jobs."""

    jobs: int = 0
    settled: int = 0
    rounds: int = 0
    clear: int = 0
    clear_undecided: int = 0
    efficiencies: int = 0
    covered: int = 0
    gains: int = 0
    gains_covered: int = 0
    wrong: Counter[str] = field(default_factory=Counter)

    def add(self, job: Job, answer: Answer, rounds: int) -> None:
        self.jobs += 1
        self.rounds += rounds
        settled = rounds < MAX_ROUNDS
        self.settled += settled
        when = "settled" if settled else "at the end"
        state_wrong = (answer.state == "input_bound" and job.loss < LOSS_WORTH_TOUCHING) or (
            answer.state == "device_bound" and job.loss > LOSS_CLEARLY_SMALL
        )
        named = answer.choice.bottleneck
        if state_wrong:
            self.wrong[f"state, {when}"] += 1
        elif answer.state == "input_bound" and named is not None and named not in job.right_names:
            self.wrong[f"name, {when}"] += 1
        if job.loss > CLEAR_LOSS:
            self.clear += 1
            self.clear_undecided += answer.state == "undecided"
        if answer.efficiency is not None:
            self.efficiencies += 1
            self.covered += answer.efficiency.low <= 1 - job.loss <= answer.efficiency.high
        for stage in answer.stages:
            if stage.name == named and stage.gain_if_free is not None:
                self.gains += 1
                self.gains_covered += stage.gain_if_free.low <= job.gain(stage.name) <= stage.gain_if_free.high


def simulate(jobs: int, seed: int = 0, progress: Callable[[int], None] = lambda _: None) -> Tally:
    """Diagnose random jobs."""
    tally = Tally()
    for number in range(jobs):
        random = np.random.default_rng((seed, number))
        job = draw_job(random)
        tally.add(job, *diagnose(job, random))
        progress(number)
    return tally


def tally_table(tally: Tally) -> str:
    """One row for each thing that was counted."""
    rows = [
        ("simulated jobs", f"{tally.jobs:,}"),
        ("settled before the last round", f"{tally.settled / tally.jobs:.0%}"),
        ("rounds, on average", f"{tally.rounds / tally.jobs:.1f}"),
        *((f"wrong {what}", f"{count:,}") for what, count in sorted(tally.wrong.items())),
        ("undecided of those that lose over 15 %", f"{tally.clear_undecided:,} of {tally.clear:,}"),
        ("efficiency within its interval", f"{tally.covered / tally.efficiencies:.1%}"),
        ("gain of the named stage within its interval", f"{tally.gains_covered / max(1, tally.gains):.1%}"),
    ]
    return markdown_table(("what", "how many"), rows)


def check_tally(tally: Tally) -> list[Check]:
    """Few wrong answers, few refused ones, and intervals that hold when the rule ends the rounds."""
    wrong, undecided = sum(tally.wrong.values()) / tally.jobs, tally.clear_undecided / tally.clear
    least = min(tally.covered / tally.efficiencies, tally.gains_covered / max(1, tally.gains))
    return [
        Check("wrong state or name under the stopping rule, simulated", "≤ 1 %", f"{wrong:.2%}", wrong <= MAX_WRONG),
        Check(
            "undecided where the loss is over 15 %, simulated",
            "≤ 10 %",
            f"{undecided:.1%}",
            undecided <= MAX_UNDECIDED,
        ),
        Check("coverage of efficiency and gain under the stopping rule", "≥ 90 %", f"{least:.1%}", least >= 0.9),
    ]
