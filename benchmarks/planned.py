"""Predictions of a plan for other workers or cores, compared with plain loops there.

`python -m benchmarks.planned JOB WORKERS CORES --seconds 20` times the plain loop of a setting and prints what it got;
with `--diagnose` it prints the result of a diagnosis there. Each has a separate process, bound to its cores.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from benchmarks.checks import Check, find_by_name, markdown_table
from benchmarks.datasets import Images, Step
from benchmarks.loop import TimedLoop
from benchmarks.uneven import LENGTH, UnevenLoader
from benchmarks.work import Work, wait
from bottleneck.analysis.plan.fit import fit
from bottleneck.api import diagnose
from bottleneck.results.json import from_json, to_json
from bottleneck.results.records import Interval

TOLERANCE, WANTED_SHARE = 0.1, 0.9
Setting = tuple[int, int]
"""Workers, and cores."""


@dataclass(frozen=True)
class Computed(Work):
    """A fixed amount of work, not of a fixed time: on a core that is shared it takes longer."""

    rounds: int = 0
    """Rounds of hashing 64 KiB, some 36 µs each."""

    def complete(self, mark: float, times: float = 1.0) -> None:
        for _ in range(round(self.rounds * times)):
            hashlib.sha256(bytes(1 << 16)).digest()


def computing(rounds: int, step_s: float, wait_s: float, num_workers: int) -> dict[str, Any]:
    """A job whose workers wait and compute for each sample."""
    return {
        "dataset": Images(LENGTH, wait(wait_s), Computed("spin", 0.0, rounds)),
        "train_step": Step(wait(step_s)),
        "device": "cpu",
        "batch_size": 8,
        "num_workers": num_workers,
        "drop_last": True,
    }


@dataclass(frozen=True)
class Job:
    """A job, the settings in which it is diagnosed, and those that are predicted from each of them."""

    name: str
    build: Callable[..., dict[str, Any]]
    diagnosed: tuple[Setting, ...] = ((4, 1), (4, 2))
    predicted: tuple[Setting, ...] = ((4, 1), (4, 2))


_FEW_AND_MANY: tuple[Setting, ...] = ((2, 2), (8, 2))
_ONE_TO_SIXTEEN: tuple[Setting, ...] = ((1, 2), (2, 2), (4, 2), (8, 2), (16, 2))
JOBS = (
    Job("computing", partial(computing, 70, 0.008, 0.0)),
    Job("near-the-crossing", partial(computing, 70, 0.018, 0.0)),
    Job("computing-and-waiting", partial(computing, 35, 0.012, 0.004)),
    Job("device-bound", partial(computing, 20, 0.030, 0.0)),
    Job("sleeping", UnevenLoader(4, 0.080, 0.0, 0.008).build, _FEW_AND_MANY, _ONE_TO_SIXTEEN),
    Job("sleeping-unevenly", UnevenLoader(4, 0.100, 0.15, 0.020).build, _FEW_AND_MANY, _ONE_TO_SIXTEEN),
)


@dataclass(frozen=True)
class Prediction:
    """Throughput [samples/s] and efficiency of a setting: of a plain loop, and predicted from another setting."""

    job: str
    diagnosed: Setting
    predicted: Setting
    true: tuple[float, float]
    said: tuple[Interval, Interval]

    @property
    def off(self) -> float:
        """The larger of the two errors, as a part of the truth."""
        return max(abs(said.estimate / true - 1) for said, true in zip(self.said, self.true, strict=True))


def predict_all(*, quick: bool = False) -> Iterator[Prediction]:
    """Time each job in its settings, and predict each setting from every other one."""
    for job in JOBS:
        click.echo(f"{job.name} …", err=True)
        truths = {
            setting: json.loads(_child(job, setting, f"--seconds={6 if quick else 20}")) for setting in job.predicted
        }
        for diagnosed in job.diagnosed:
            result = from_json(_child(job, diagnosed, "--diagnose", *(["--quick"] if quick else [])))
            found = fit([result], [job.name])
            for setting in (setting for setting in job.predicted if setting != diagnosed):
                yield Prediction(job.name, diagnosed, setting, tuple(truths[setting]), found.rates(*setting))


def _child(job: Job, setting: Setting, *options: str) -> str:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.planned", job.name, *map(str, setting), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def predictions_table(predictions: Sequence[Prediction]) -> str:
    """Return the predicted and the true numbers, in markdown."""
    rows = []
    for one in predictions:
        (rate, share), (true_rate, true_share) = one.said, one.true
        settings = (f"{workers} workers, {cores} cores" for workers, cores in (one.diagnosed, one.predicted))
        rows.append((
            one.job, *settings, f"{true_rate:,.0f}, {true_share:.0%}",
            f"{rate.estimate:,.0f} ({rate.low:,.0f} – {rate.high:,.0f})",
            f"{share.estimate:.0%} ({share.low:.0%} – {share.high:.0%})", f"{one.off:.0%}",
        ))  # fmt: skip
    headers = (
        "job",
        "diagnosed with",
        "predicted for",
        "plain loop",
        "samples/s (95 %)",
        "efficiency (95 %)",
        "off by",
    )
    return markdown_table(headers, rows)


def check_predictions(predictions: Sequence[Prediction]) -> Check:
    """The bar on predictions."""
    off = [one for one in predictions if one.off > TOLERANCE]
    return Check(
        "throughput and efficiency on other cores and with other workers, as planned",
        "within 10 % in nine of ten",
        f"{len(predictions) - len(off)} of {len(predictions)}",
        len(predictions) - len(off) >= WANTED_SHARE * len(predictions),
        tuple(f"{one.job}, {one.diagnosed} to {one.predicted}: off by {one.off:.0%}" for one in off),
    )


@click.command()
@click.argument("name", metavar="JOB")
@click.argument("setting", type=int, nargs=2, metavar="WORKERS CORES")
@click.option("--seconds", default=20.0, help="Time of the plain loop in its steady state.")
@click.option("--diagnose", "diagnosed", is_flag=True, help="Diagnose it instead.")
@click.option("--quick", is_flag=True, help="A quick diagnosis.")
def main(name: str, setting: Setting, seconds: float, diagnosed: bool, quick: bool) -> None:
    """Time the plain loop of JOB in a setting, or diagnose it there, and print JSON."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: setting[1]])
    fields = find_by_name(JOBS, name).build(num_workers=setting[0])
    if diagnosed:
        click.echo(to_json(diagnose(fields, quick=quick)))
        return
    took = TimedLoop(fields).run(seconds)
    click.echo(json.dumps((took.batches * fields["batch_size"] / took.seconds, took.efficiency)))


if __name__ == "__main__":
    main()
