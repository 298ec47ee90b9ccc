"""The price of `bottleneck monitor`, and what it names in a run with stalls: `python -m benchmarks.monitored`."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from torch.utils.data import DataLoader, TensorDataset

import bottleneck
from benchmarks.checks import Check, markdown_table
from bottleneck.results.values import Interval

LIMIT_S = 20e-6
STEP_S = 2e-3
STEPS, PAIRS = 250, 60
SCRIPT = Path(__file__).parent / "scripts" / "stalls.py"
MINUTES = 5.0


@dataclass(frozen=True)
class Overhead:
    """The time that monitoring adds to a step of 2 ms, in the median of pairs, with its interval of 95 %.

    Attributes:
        workers: Of the loader.
        plain_s: Seconds of a step without it.
        wall: Seconds by the clock that it adds to a step.
        cpu: CPU seconds of the main process that it adds: what other processes do to the clock is not in there.
    """

    workers: int
    plain_s: float
    wall: Interval
    cpu: Interval


def measure_overheads(pairs: int = PAIRS) -> list[Overhead]:
    """Measure loops with and without monitoring, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        return [_measure(workers, Path(folder), pairs) for workers in (0, 2)]


def _measure(workers: int, folder: Path, pairs: int) -> Overhead:
    work = _work_of(STEP_S)
    found = []
    for number in range(pairs + 1):
        taken = {}
        for is_watched in (False, True) if number % 2 else (True, False):
            context: Any = bottleneck.monitoring(folder / "events.jsonl") if is_watched else nullcontext()
            with context:
                taken[is_watched] = _per_step(workers, work)
        found.append((taken[False], taken[True]))
    found = found[1:]  # the first pair warms up
    added = [[watched[at] - plain[at] for plain, watched in found] for at in (0, 1)]
    return Overhead(workers, statistics.median(plain[0] for plain, _ in found), *map(_median, added))


def _median(differences: list[float]) -> Interval:
    """The median, and the ranks between which it is with 95 %, by the binomial distribution."""
    ordered, count = sorted(differences), len(differences)
    half = 0.98 * count**0.5
    low, high = max(0, math.floor(count / 2 - half)), min(count - 1, math.ceil(count / 2 + half))
    return Interval(statistics.median(ordered), ordered[low], ordered[high])


def _per_step(workers: int, work: Callable[[], Any]) -> tuple[float, float]:
    """Time of a step, by the clock and of this process's CPU."""
    loader = DataLoader(TensorDataset(torch.zeros(8 * (STEPS + 10), 16)), batch_size=8, num_workers=workers)
    batches = iter(loader)
    for _ in range(10):
        next(batches)
    began_s, used_s = time.perf_counter(), time.process_time()
    for _ in batches:
        work()
    return (time.perf_counter() - began_s) / STEPS, (time.process_time() - used_s) / STEPS


def _work_of(seconds: float) -> Callable[[], Any]:
    """A computation of about so many seconds, by one thread, that nothing shortens or prolongs."""
    torch.set_num_threads(1)
    matrix = torch.full((96, 96), 1e-3)

    def multiply(times: int) -> None:
        for _ in range(times):
            matrix @ matrix

    multiply(1_000)
    began_s = time.perf_counter()
    multiply(1_000)
    times = max(1, round(1_000 * seconds / (time.perf_counter() - began_s)))
    return lambda: multiply(times)


def check_overheads(overheads: list[Overhead]) -> Check:
    """The bar on what monitoring costs; on a busy machine the clock says nothing of microseconds."""
    dearest = max(overheads, key=lambda one: one.cpu.estimate)
    return Check(
        "`bottleneck monitor`, steps of 2 ms",
        f"≤ {LIMIT_S * 1e6:.0f} µs of CPU a step",
        f"at most {_shown(dearest.cpu)}",
        dearest.cpu.estimate <= LIMIT_S,
    )


def _shown(added: Interval) -> str:
    estimate, low, high = (f"{1e6 * value:+.1f}" for value in (added.estimate, added.low, added.high))
    return f"{estimate} µs ({low} to {high})"


def overheads_table(overheads: list[Overhead]) -> str:
    """The costs in markdown."""
    rows = [(str(one.workers), f"{one.plain_s * 1e3:.3f} ms", _shown(one.wall), _shown(one.cpu)) for one in overheads]
    return markdown_table(("workers", "a step without", "added by the clock", "added CPU"), rows)


# --- a run with stalls -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """A stall that was planted, and what was said of it."""

    what: str
    planted: int
    """Times that it was planted."""
    named: int
    """Times that it was told with worker, sample, stage and line, all of them right."""


def run_with_stalls(minutes: float = MINUTES) -> list[Named]:
    """Watch a job in which stalls of a long run come within some minutes."""
    with tempfile.TemporaryDirectory() as folder:
        truth, events = Path(folder, "truth"), Path(folder, "events.jsonl")
        command = [sys.executable, "-m", "bottleneck", "monitor", "--out", str(events), str(SCRIPT)]
        subprocess.run([*command, str(truth), str(60 * minutes)], check=True, capture_output=True)
        planted = [json.loads(line) for line in truth.read_text().splitlines()]
        told = [json.loads(line) for line in events.read_text().splitlines()]
    return named_stalls(planted, told)


def named_stalls(planted: list[dict[str, Any]], told: list[dict[str, Any]]) -> list[Named]:
    """Compare stalls that were planted with events."""
    found = []
    for what in ("sample", "worker", "checkpoint"):
        of_kind = [one for one in planted if one["what"] == what]
        found.append(Named(what, len(of_kind), sum(_is_told(one, told) for one in of_kind)))
    return found


def _is_told(planted: dict[str, Any], told: list[dict[str, Any]]) -> bool:
    """Tell whether a stall was told, with all that is known of it."""
    wanted = {key: value for key, value in planted.items() if key not in ("what", "at", "index")}
    kind = "checkpoint" if planted["what"] == "checkpoint" else "slow_batch"
    return any(
        event["event"] == kind
        and abs(event["at"] - planted["at"]) < 10
        and all(event[key] == value for key, value in wanted.items())
        and planted.get("index") in (None, *(event.get("indices") or ()))
        for event in told
    )


def check_stalls(named: list[Named]) -> Check:
    """The bar on stalls: each is named."""
    missed = [f"{one.planted - one.named} of {one.planted} ({one.what})" for one in named if one.named < one.planted]
    count = sum(one.planted for one in named)
    return Check(
        "stalls in a run of five minutes: worker, sample, stage, line",
        "each",
        f"missed: {', '.join(missed)}" if missed else f"all {count}",
        not missed and all(one.planted for one in named),
    )


def stalls_table(named: list[Named]) -> str:
    """The stalls that were planted and named, in markdown."""
    return markdown_table(
        ("stall", "planted", "named"), [(one.what, str(one.planted), str(one.named)) for one in named]
    )


@click.command()
@click.option("--pairs", default=PAIRS, show_default=True)
@click.option("--minutes", default=MINUTES, show_default=True)
def main(pairs: int, minutes: float) -> None:
    """Print both tables."""
    if pairs:
        overheads = measure_overheads(pairs)
        click.echo(f"{overheads_table(overheads)}\n{check_overheads(overheads)}")
    if minutes:
        named = run_with_stalls(minutes)
        click.echo(f"{stalls_table(named)}\n{check_stalls(named)}")


if __name__ == "__main__":
    main()
