"""Gain if free, the headline of a report, beside what a plain loop gains when the stage is taken out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from benchmarks.checks import Check, distance_outside, markdown_table
from benchmarks.efficiencies import run_diagnosis
from benchmarks.paired import PAIRS, PAIRS_QUICK, Realised, realise
from benchmarks.planted import Planted, find_planted
from benchmarks.taken_out import without
from benchmarks.uneven import UnevenLoader
from bottleneck.results.records import Interval, Result

TOLERANCE = 0.03
_LENGTH = 10_000_000
"""Samples: no plain loop comes to the end of its epoch."""


@dataclass(frozen=True)
class Job:
    """A job whose stages can be taken out.

    Attributes:
        name: For people.
        build: The fields of the pipeline, anew at each call.
        stages: Those to be looked at.
    """

    name: str
    build: Callable[[], dict[str, Any]]
    stages: tuple[str, ...]


def _planted(name: str, *stages: str) -> Job:
    planted: Planted = find_planted(name)
    return Job(name, lambda: planted.build(length=_LENGTH), stages)


def _uneven(name: str, job: UnevenLoader, *stages: str) -> Job:
    return Job(name, job.build, stages)


JOBS: tuple[Job, ...] = (
    _planted("load_wait", "load"),
    _planted("augment_spin", "augment"),
    _planted("collate_spin", "collate"),
    _planted("copy_slow", "copy"),
    _planted("last_straw", "augment", "load"),
    _planted("no_workers", "augment", "load"),
    _planted("finish", "load"),
    _planted("marked_crop", "crop"),
    _uneven("4 uneven workers", UnevenLoader(4, 0.060, 0.15, 0.020, augment_s=0.040), "load", "augment"),
    _uneven("8 uneven workers", UnevenLoader(8, 0.100, 0.30, 0.020, augment_s=0.150), "load", "augment"),
)


@dataclass(frozen=True)
class Gain:
    """The gain of a stage that is free: realised in plain loops, and as reported."""

    job: str
    stage: str
    realised: Realised
    reported: Interval | None
    failure: str = ""

    @property
    def outside(self) -> float:
        return distance_outside(self.reported, self.realised.gain.estimate)

    @property
    def right(self) -> bool:
        """Return True if the widened interval contains the truth."""
        return self.outside <= TOLERANCE


def measure_gains(jobs: Iterable[Job] = JOBS, *, quick: bool = False) -> list[Gain]:
    """Diagnose each job, between plain loops with and without each of its stages.

    How quickly a process wakes up changes within minutes, and with it the gain of a stage whose absence leaves the
    train step to be waited for: plain loops that all came after the diagnosis would see another machine.
    """
    gains: list[Gain] = []
    for job in jobs:
        click.echo(f"gains of {job.name} … ", err=True, nl=False)
        pairs = ((PAIRS_QUICK if quick else PAIRS) + 1) // 2
        before = {stage: realise(job.build(), without(job.build(), stage), pairs=pairs) for stage in job.stages}
        result, _, failure = run_diagnosis(job.build(), quick=quick)
        for stage, earlier in before.items():
            realised = realise(
                job.build(), without(job.build(), stage),
                pairs=pairs, half_width=TOLERANCE, earlier=earlier.ratios,
            )  # fmt: skip
            gains.append(Gain(job.name, stage, realised, reported_gain(result, stage), failure))
            click.echo(f"{stage} {'in' if gains[-1].right else 'OUT'} ", err=True, nl=False)
        click.echo(err=True)
    return gains


def reported_gain(result: Result | None, stage: str) -> Interval | None:
    """Return the gain of a free stage according to a result."""
    stages = () if result is None else result.stages
    return next((found.gain_if_free for found in stages if found.name == stage), None)


def factor_interval(interval: Interval | None) -> str:
    """A factor and its interval."""
    return "–" if interval is None else f"{interval.estimate:.2f}x ({interval.low:.2f} – {interval.high:.2f})"


def gains_table(gains: Sequence[Gain]) -> str:
    """Realised and reported gains, in markdown."""
    rows = [
        (
            gain.job,
            gain.stage,
            factor_interval(gain.realised.gain),
            gain.failure or factor_interval(gain.reported),
            "in" if gain.right else "**out**" if gain.reported is None else f"**out by {gain.outside:.2f}**",
        )
        for gain in gains
    ]
    headers = ("job", "stage", "plain loops (95 % interval)", "reported (95 % interval)", "truth")
    return markdown_table(headers, rows)


def check_gains(gains: Sequence[Gain]) -> Check:
    """The bar on gains."""
    wrong = [gain for gain in gains if not gain.right]
    return Check(
        "gain if free against a plain loop without the stage",
        "truth within the interval widened by 0.03",
        f"{len(gains) - len(wrong)} of {len(gains)}",
        not wrong,
        tuple(f"{gain.job}/{gain.stage}: {_miss(gain)}" for gain in wrong),
    )


def _miss(gain: Gain) -> str:
    return gain.failure or ("not reported" if gain.reported is None else f"out by {gain.outside:.2f}")
