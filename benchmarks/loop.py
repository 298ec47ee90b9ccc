"""The speed of a plain training loop, and of its step alone: the efficiency by which that of a diagnosis is judged.

A loop whose workers wait leaves the cores free, so that several run side by side, each in a separate process:
`python -m benchmarks.loop benchmarks.regimes:NAME` measures one and prints it as JSON.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import click
import torch

from benchmarks.plain import plain_loader, plain_move

SECONDS = 60.0
MAX_TIMES = 3
"""Times the seconds that a loop may go on to be known precisely."""
WANTED_ERROR = 0.004
AT_ONCE = 2
"""Loops side by side: one that starts takes a core for some seconds, which the others must not notice."""
WARM_UP_QUEUES = 4
MIN_WARM_UP = 16
_PARTS = 20
"""Parts of a loop, whose differences say how precisely the whole is known."""
_STEP_PARTS, _STEP_PART_S, _STEP_PAUSE_S, _MAX_KEPT = 9, 0.5, 1.0, 64


@dataclass(frozen=True)
class LoopTime:
    """A plain loop in its steady state.

    Attributes:
        batches: How many were trained on.
        seconds: How long that took.
        step_s: What the step alone takes for the very same batches, per batch.
        efficiency: The time of the step alone over that of the loop.
        error: Standard error of the efficiency.
    """

    batches: int
    seconds: float
    step_s: float
    efficiency: float
    error: float


class TimedLoop:
    """The loop that a user would write.

    Args:
        fields: Of the pipeline; its `train_step` is a `datasets.Step`, which knows what a batch takes.
        clock: A steady clock.
        pause: Lets time pass by the clock.
    """

    def __init__(
        self,
        fields: dict[str, Any],
        clock: Callable[[], float] = time.perf_counter,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._step, self._move = fields["train_step"], plain_move(fields)
        self._device, self._clock, self._pause = torch.device(fields["device"]), clock, pause
        self._turn = max(1, fields["num_workers"])
        queue = self._turn * (fields.get("prefetch_factor") or 2)
        self._warm_up = max(MIN_WARM_UP, WARM_UP_QUEUES * queue)
        self._batches = _endless(plain_loader(fields))
        self._kept: list[Any] = []
        self._edges: list[tuple[float, float]] = []

    def run(self, seconds: float, most_times: float = MAX_TIMES) -> LoopTime:
        """Trains for so many seconds, or up to some times as long if the efficiency isn't known well enough by then."""
        for _ in range(self._warm_up):
            self._train()
        planned, start = 0.0, self._clock()
        self._edges = [(start, 0.0)]
        until_s = start + seconds
        while True:
            # Workers in phase deliver in bursts, and an edge within one would be off by most of a turn.
            planned += sum(self._train() for _ in range(self._turn))
            now = self._clock()
            self._edges.append((now, planned))
            if now >= until_s:
                if now - start >= seconds * most_times or self._efficiency(1.0)[1] <= WANTED_ERROR:
                    break
                until_s = now + seconds / 4
        # Last, when the queues are full and the workers do nothing.
        real = self._step_alone()
        efficiency, error = self._efficiency(real)
        batches = (len(self._edges) - 1) * self._turn
        return LoopTime(batches, now - start, real * planned / batches, efficiency, error)

    def _train(self) -> float:
        """Return the planned time of the step with this batch."""
        batch = self._move(next(self._batches), self._device)
        self._step(batch)
        if len(self._kept) < _MAX_KEPT:
            self._kept.append(batch)
        return self._planned_s(batch)

    def _planned_s(self, batch: Any) -> float:
        return float(self._step.work.seconds * self._step.times(batch))

    def _step_alone(self) -> float:
        """Return what the step really takes over what it was planned to: the lower quartile of several parts.

        The loop beside this one ends about when this one does, and another process starts in its place: for some
        seconds it delays the step, which would pass for a higher efficiency. So the parts are a second apart, and most
        of them may be delayed.
        """
        batches = itertools.cycle(self._kept)
        for _ in range(2):
            self._step(next(batches))
        ratios = []
        for _ in range(_STEP_PARTS):
            self._pause(_STEP_PAUSE_S)
            self._step(next(batches))
            planned, start = 0.0, self._clock()
            while self._clock() - start < _STEP_PART_S:
                batch = next(batches)
                self._step(batch)
                planned += self._planned_s(batch)
            ratios.append((self._clock() - start) / planned)
        return statistics.quantiles(ratios, n=4)[0]

    def _efficiency(self, real: float) -> tuple[float, float]:
        """Return the efficiency and its standard error, with a step that takes so many times what was planned."""
        return ratio_with_error(parts_of(self._edges, _PARTS), real)


def parts_of(edges: Sequence[tuple[float, float]], parts: int) -> list[tuple[float, float]]:
    """(seconds, planned seconds) of about as many parts of equal numbers of turns.

    Args:
        edges: (time, planned seconds of the steps so far) at the start and after each turn.
        parts: How many there should be.
    """
    turns = len(edges) - 1
    cuts = sorted({round(number * turns / parts) for number in range(parts + 1)})
    return [
        (edges[last][0] - edges[first][0], edges[last][1] - edges[first][1])
        for first, last in itertools.pairwise(cuts)
    ]  # fmt: skip


def ratio_with_error(parts: Sequence[tuple[float, float]], real: float = 1.0) -> tuple[float, float]:
    """The ratio of the sums of planned and passed seconds, and its standard error from how the parts differ."""
    passed = sum(seconds for seconds, _ in parts)
    ratio = real * sum(planned for _, planned in parts) / passed
    if len(parts) < 2:
        return ratio, math.inf
    residuals = [real * planned - ratio * seconds for seconds, planned in parts]
    return ratio, statistics.stdev(residuals) * math.sqrt(len(parts)) / passed


def time_loops(
    jobs: Sequence[str], seconds: float, at_once: int = AT_ONCE, most_times: int = MAX_TIMES
) -> list[LoopTime]:
    """Measures loops side by side, each in a separate process.

    Args:
        jobs: As `find_job` takes them.
        seconds: For each.
        at_once: How many run at the same time.
        most_times: Times the seconds that one may go on to be known precisely.
    """

    def time_one(job: str) -> LoopTime:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.loop", job]
        command += ["--seconds", str(seconds), "--most-times", str(most_times)]
        return LoopTime(**json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(time_one, jobs))


def find_job(job: str) -> dict[str, Any]:
    """The fields of a pipeline.

    Args:
        job: `module:name`; the module has a `find_job`, which returns what has a `build`.
    """
    module, _, name = job.partition(":")
    fields: dict[str, Any] = importlib.import_module(module).find_job(name).build()
    return fields


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


@click.command()
@click.argument("job", metavar="MODULE:NAME")
@click.option("--seconds", type=float, default=SECONDS, show_default=True, help="Time in the steady state.")
@click.option("--most-times", default=MAX_TIMES, show_default=True, help="Times as long, for a precise result.")
def main(job: str, seconds: float, most_times: int) -> None:
    """Measure a plain loop over the job NAME of MODULE and print what it took as JSON."""
    click.echo(json.dumps(asdict(TimedLoop(find_job(job)).run(seconds, most_times))))


if __name__ == "__main__":
    main()
