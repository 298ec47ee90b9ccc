"""`bottleneck run` on scripts in the styles that people write, beside the scripts' own speed without it.

Where a description can state the whole loop, `bottleneck diagnose` on that is asked, too: the answers have to agree.

A script alone reports its own times: of an unchanged batch, and with one batch over and over. It
is asked before and after the diagnosis, alone on the machine, whose speed changes by some percent within minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.checks import Check, distance_outside, interval_percent, markdown_table, milliseconds, percent
from bottleneck.api import load
from bottleneck.results.records import Interval

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "benchmarks" / "scripts"
SECONDS, QUICK_SECONDS = 4.0, 2.0
BUDGET, QUICK_BUDGET = "30s", "20s"
TOLERANCE = 0.03
"""Relative error allowed for an estimate whose interval misses the truth."""
MAX_SLOWDOWN = 0.02
_PATIENCE_S = 180.0


@dataclass(frozen=True)
class Script:
    """A script whose bottleneck is planted."""

    name: str
    what: str
    state: str
    bottleneck: str
    arguments: tuple[str, ...] = ()
    described: str = ""
    """Function of `described.py` that describes the same job; empty where none could."""


STYLES = (
    Script("plain.py", "a loop by hand, workers fast enough", "device_bound", "compute", ("2",), "plain"),
    Script(
        "by_hand.py", "next() by hand, no workers, two batches an update", "input_bound", "augment", described="by_hand"
    ),
    Script("get_batch.py", "no DataLoader: bottleneck.watch", "input_bound", "fetch"),
    Script("reference.py", "a generator around a loader that spawns", "input_bound", "load", described="reference"),
    Script("with_lightning.py", "Lightning's fit", "input_bound", "augment"),
    Script("with_trainer.py", "Trainer, four batches an update", "input_bound", "load"),
)


@dataclass(frozen=True)
class Plain:
    """Times of a batch of a script alone: unchanged, and with one batch over and over."""

    real_s: float
    cached_s: float

    @staticmethod
    def mean(one: Plain, other: Plain) -> Plain:
        return Plain((one.real_s + other.real_s) / 2, (one.cached_s + other.cached_s) / 2)

    @property
    def efficiency(self) -> float:
        return min(1.0, self.cached_s / self.real_s)


@dataclass(frozen=True)
class Answer:
    """The answer of a command on a job."""

    state: str
    bottleneck: str | None
    efficiency: Interval | None
    raw_s: float | None
    """Time of a batch of the unchanged job, as the diagnosis measured it."""
    seconds: float
    """Time that the command took."""
    failure: str = ""
    """Reason why there is no verdict; empty if there is one."""

    @property
    def verdict(self) -> tuple[str, str | None]:
        """State and bottleneck."""
        return self.state, self.bottleneck


@dataclass(frozen=True)
class Run:
    """A script under `bottleneck run`."""

    script: Script
    plain: Plain
    found: Answer
    described: Answer | None = None
    """Answer of `bottleneck diagnose` on the same job; None if it was not run."""

    @property
    def right(self) -> bool:
        """Return True if the verdict is the planted one."""
        return self.found.verdict == (self.script.state, self.script.bottleneck)

    @property
    def agrees(self) -> bool:
        """Return True if the interval contains the script's own efficiency, or the estimate is near it."""
        return _holds(self.found.efficiency, self.plain.efficiency)

    @property
    def agrees_with_diagnose(self) -> bool:
        """Return True if both commands give the same verdict, and one efficiency is in or near the other's interval."""
        if self.described is None:
            return True
        one, other = self.found, self.described
        if one.efficiency is None or other.efficiency is None or one.verdict != other.verdict:
            return False
        return _holds(one.efficiency, other.efficiency.estimate) or _holds(other.efficiency, one.efficiency.estimate)

    @property
    def slowdown(self) -> float | None:
        """Return the additional time of a batch under the diagnosis, as a share of that of the script alone."""
        return None if self.found.raw_s is None else self.found.raw_s / self.plain.real_s - 1


def _holds(reported: Interval | None, truth: float) -> bool:
    if reported is None:
        return False
    return abs(reported.estimate - truth) <= TOLERANCE or not distance_outside(reported, truth)


def run_all(*, quick: bool = False) -> list[Run]:
    """Run the scripts under the diagnosis, and by themselves before and after it."""
    seconds, budget = (QUICK_SECONDS, QUICK_BUDGET) if quick else (SECONDS, BUDGET)
    return [run_one(script, seconds, budget) for script in STYLES]


def run_one(script: Script, seconds: float, budget: str) -> Run:
    """Run a script under the diagnosis, its description, and the script alone before and after them."""
    click.echo(f"{script.name} … ", err=True, nl=False)
    before = time_script(script, seconds)
    found = ask("run", _command(script), budget)
    after = time_script(script, seconds)
    described = None
    if script.described:
        described = ask("diagnose", (f"described:{script.described}",), budget)
    click.echo(f"{found.state}, {found.bottleneck} in {found.seconds:.0f} s", err=True)
    return Run(script, Plain.mean(before, after), found, described)


def time_script(script: Script, seconds: float) -> Plain:
    """Let a script report its time of a batch, unchanged in one process and with a cached batch in another."""

    def s_per_batch(**cached: str) -> float:
        told = run_python(_command(script), BENCH_SECONDS=str(seconds), **cached)
        told.check_returncode()
        return float(json.loads(told.stdout.splitlines()[-1])["s_per_batch"])

    return Plain(s_per_batch(), s_per_batch(BENCH_CACHED="1"))


def ask(command: str, job: Sequence[str], budget: str) -> Answer:
    """Diagnose a job. A failure is a wrong verdict, not the end of the bench."""
    with tempfile.TemporaryDirectory() as folder:
        saved, start = Path(folder) / "result.json", time.perf_counter()
        done = run_python(("-m", "bottleneck", command, "--budget", budget, "--json", str(saved), *job))
        seconds = time.perf_counter() - start
        if done.returncode or not saved.exists():
            last = (done.stderr.splitlines() or ["nothing was said"])[-1]
            return Answer("failed", None, None, None, seconds, f"status {done.returncode}: {last}")
        result = load(saved)
    raw = next((one.coupled for one in result.experiments if one.name == "raw"), None)
    verdict = result.verdict
    raw_s = None if raw is None else raw.seconds_per_batch
    return Answer(verdict.state, verdict.bottleneck, verdict.efficiency, raw_s, seconds)


def _command(script: Script) -> tuple[str, ...]:
    return (str(SCRIPTS / script.name), *script.arguments)


def run_python(arguments: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in an empty folder, with the scripts of the bench at hand."""
    path = os.pathsep.join((str(ROOT), str(SCRIPTS)))
    variables = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", **environment}
    with tempfile.TemporaryDirectory() as folder:  # what the script writes
        return subprocess.run(
            (sys.executable, "-W", "ignore", *arguments),
            cwd=folder, env=variables, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
        )  # fmt: skip


def runs_table(runs: Sequence[Run]) -> str:
    """Truth and verdict of each script, in markdown."""
    rows = [
        (
            run.script.name,
            run.script.what,
            run.script.bottleneck,
            run.found.failure or f"{run.found.bottleneck or run.found.state}",
            "right" if run.right else "**wrong**",
            f"{run.plain.efficiency:.1%}",
            interval_percent(run.found.efficiency),
            "in" if run.agrees else "**out**",
            _described_cell(run),
            f"{milliseconds(run.plain.real_s)} → {milliseconds(run.found.raw_s)}",
            percent(run.slowdown),
            f"{run.found.seconds:.0f} s",
        )
        for run in runs
    ]
    headers = ("script", "style", "planted", "found", "", "efficiency alone", "reported (95 % interval)", "truth")
    more = ("`diagnose` on the same job", "a batch alone → measured", "slower", "took")
    return markdown_table((*headers, *more), rows)


def _described_cell(run: Run) -> str:
    if run.described is None:
        return "–"
    answer = run.described
    return answer.failure or f"{answer.bottleneck or answer.state}, {interval_percent(answer.efficiency)}"


def check_runs(runs: Sequence[Run]) -> list[Check]:
    """The bars on scripts."""
    wrong, off = [run for run in runs if not run.right], [run for run in runs if not run.agrees]
    described = [run for run in runs if run.described is not None]
    apart = [run for run in described if not run.agrees_with_diagnose]
    slowed = [run for run in runs if run.slowdown is None or abs(run.slowdown) > MAX_SLOWDOWN]
    return [
        Check(
            "verdicts on scripts",
            "all right",
            f"{len(runs) - len(wrong)} of {len(runs)} right",
            not wrong,
            tuple(
                f"{run.script.name}: {run.found.failure or run.found.bottleneck or run.found.state}" for run in wrong
            ),
        ),
        Check(
            "efficiency of scripts against their own speed",
            "within the interval, or 3 points",
            f"{len(runs) - len(off)} of {len(runs)}",
            not off,
            tuple(f"{run.script.name}: {run.plain.efficiency:.1%} alone" for run in off),
        ),
        Check(
            "`run` on a script and `diagnose` on the same job",
            "same verdict; efficiency within the interval, or 3 points",
            f"{len(described) - len(apart)} of {len(described)} agree",
            not apart,
            tuple(f"{run.script.name}: {_described_cell(run)}" for run in apart),
        ),
        Check(
            "what the diagnosis changes of a script's own speed",
            "≤ 2 %",
            f"{len(runs) - len(slowed)} of {len(runs)} within",
            not slowed,
            tuple(f"{run.script.name}: {percent(run.slowdown)}" for run in slowed),
        ),
    ]
