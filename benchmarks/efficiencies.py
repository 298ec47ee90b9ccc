"""Reported efficiencies beside those of plain loops, and the bar on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import click

from benchmarks.checks import Check, distance_outside, interval_percent, markdown_table
from benchmarks.loop import AT_ONCE, SECONDS, LoopTime, time_loops
from bottleneck.api import diagnose
from bottleneck.results.records import Interval, Result

TOLERANCE = 0.01
"""By which an interval is widened before it is looked whether the truth is in it."""
WANTED_SHARE = 19 / 20
QUICK_SECONDS = 10.0


class Job(Protocol):
    """A job that can be timed and diagnosed."""

    @property
    def name(self) -> str:
        """By which it is found in its module."""

    @property
    def what(self) -> str:
        """For people."""

    def build(self) -> dict[str, Any]:
        """The fields of the pipeline."""


@dataclass(frozen=True)
class Judged:
    """A job, its plain loop and what a diagnosis says of it."""

    name: str
    what: str
    plain: LoopTime
    state: str
    reported: Interval | None
    seconds: float
    """Time that the diagnosis took."""
    failure: str = ""
    """Reason why there is no verdict; empty if there is one."""

    @property
    def outside(self) -> float:
        return distance_outside(self.reported, self.plain.efficiency)

    @property
    def right(self) -> bool:
        """Return True if the widened interval contains the truth."""
        return self.outside <= TOLERANCE


def run_diagnosis(fields: Mapping[str, Any], *, quick: bool = False) -> tuple[Result | None, float, str]:
    """Return the result, what it took in seconds, and why there is none; a failure does not end the bench."""
    start = time.perf_counter()
    try:
        result, failure = diagnose(fields, quick=quick), ""
    except Exception as error:  # noqa: BLE001 - after any failure, the other jobs are still to be run
        result, failure = None, f"{type(error).__name__}: {error}"
    return result, time.perf_counter() - start, failure


def judge(name: str, what: str, plain: LoopTime, fields: Mapping[str, Any], *, quick: bool = False) -> Judged:
    """Diagnose a job whose plain loop has been timed."""
    result, seconds, failure = run_diagnosis(fields, quick=quick)
    if result is None:
        return Judged(name, what, plain, "failed", None, seconds, failure)
    return Judged(name, what, plain, result.verdict.state, result.verdict.efficiency, seconds)


def judge_all(module: str, jobs: Sequence[Job], *, quick: bool = False, seconds: float | None = None) -> list[Judged]:
    """Time the plain loops side by side, then diagnose one job after the other.

    Args:
        module: Where another process finds the jobs.
        jobs: Which.
        quick: Quick diagnoses and short loops.
        seconds: Of each loop; None: a minute, or less if it is to be quick.
    """
    seconds = seconds or (QUICK_SECONDS if quick else SECONDS)
    click.echo(f"{len(jobs)} plain loops, {AT_ONCE} at a time …", err=True)
    truths = time_loops([f"{module}:{job.name}" for job in jobs], seconds)
    judged = []
    for job, truth in zip(jobs, truths, strict=True):
        click.echo(f"{job.name} … ", err=True, nl=False)
        judged.append(judge(job.name, job.what, truth, job.build(), quick=quick))
        click.echo(f"{judged[-1].state}, {'in' if judged[-1].right else 'OUT'}", err=True)
    return judged


def command(module: str, find: Callable[[str], Job]) -> click.Command:
    """A command that times and diagnoses jobs of a module by their names."""

    @click.command()
    @click.argument("names", nargs=-1, required=True, metavar="NAME...")
    @click.option("--seconds", type=float, help="Time of each plain loop in its steady state.")
    @click.option("--quick", is_flag=True, help="Quick diagnoses and shorter loops.")
    def main(names: tuple[str, ...], seconds: float | None, quick: bool) -> None:
        """Time the plain loop of each job NAME, diagnose it, and print both efficiencies."""
        try:
            jobs = [find(name) for name in names]
        except KeyError as error:
            raise click.BadParameter(str(error.args[0]), param_hint="NAME") from error
        click.echo(judged_table(judge_all(module, jobs, quick=quick, seconds=seconds)))

    return main


def judged_table(judged: Sequence[Judged]) -> str:
    """True and reported efficiencies, in markdown."""
    rows = [
        (
            one.name,
            one.what,
            f"{one.plain.efficiency:.1%} ± {one.plain.error:.1%}",
            one.failure or interval_percent(one.reported),
            "in" if one.right else "**out**" if one.reported is None else f"**out by {one.outside * 100:.1f}**",
            one.state,
            f"{one.seconds:.0f} s",
        )
        for one in judged
    ]
    headers = ("job", "what", "plain loop ± s.e.", "reported (95 % interval)", "truth", "state", "took")
    return markdown_table(headers, rows)


def check_judged(what: str, judged: Sequence[Judged]) -> Check:
    """The bar on efficiencies."""
    wrong = [one for one in judged if not one.right]
    return Check(
        what,
        "truth within the interval widened by one point, in 19 of 20",
        f"{len(judged) - len(wrong)} of {len(judged)}",
        len(judged) - len(wrong) >= WANTED_SHARE * len(judged),
        tuple(f"{one.name}: {one.failure or f'out by {one.outside * 100:.1f} points'}" for one in wrong),
    )
