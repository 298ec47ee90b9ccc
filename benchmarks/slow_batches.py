"""The job that GPUs have: 256 pictures a batch, a second or more of work for a worker, a step of 100 to 200 ms.

Workers and step sleep, so that sixteen of them do on two cores. `python -m benchmarks.slow_batches NAME` times the
plain loops of one and diagnoses it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import torch
from torch.utils.data import Dataset

from benchmarks.checks import Check, find_by_name, interval_percent, markdown_table
from benchmarks.datasets import CLASSES, Step
from benchmarks.loop import AT_ONCE, time_loops
from benchmarks.work import Work, wait
from bottleneck.analysis.settings import LOSS_CLEARLY_SMALL, LOSS_WORTH_TOUCHING
from bottleneck.api import diagnose
from bottleneck.measure.options import ProgressUpdate
from bottleneck.results.records import Result

BATCH_SIZE, SIDE, LENGTH = 256, 112, 10_000_000


@dataclass(frozen=True)
class SlowBatches:
    """A job whose workers take a second or more for a batch.

    Attributes:
        num_workers: Worker processes.
        load_s: Wait for each picture.
        augment_s: Wait for the augmentation of each.
        step_s: Time of a step.
    """

    num_workers: int
    load_s: float
    augment_s: float
    step_s: float

    @property
    def name(self) -> str:
        """Such as `w3-load3-augment5-step138`, in ms."""
        load, augment, step = (f"{seconds * 1e3:.3g}" for seconds in (self.load_s, self.augment_s, self.step_s))
        return f"w{self.num_workers}-load{load}-augment{augment}-step{step}"

    @property
    def worker_batch_s(self) -> float:
        """Planned time of a worker for a batch [s]."""
        return BATCH_SIZE * (self.load_s + self.augment_s)

    @property
    def longer_stage(self) -> str:
        return "load" if self.load_s > self.augment_s else "augment"

    def build(self, **changes: Any) -> dict[str, Any]:
        """Return the fields of the pipeline.

        Args:
            **changes: Fields to replace.
        """
        fields = {
            "dataset": Pictures(wait(self.load_s), wait(self.augment_s)),
            "train_step": Step(wait(self.step_s)),
            "device": "cpu",
            "batch_size": BATCH_SIZE,
            "num_workers": self.num_workers,
            "drop_last": True,
        }
        return {**fields, **changes}


class Pictures(Dataset[Any]):
    """Pictures of 112 by 112, uint8, loaded and then augmented.

    Args:
        load: What loading one takes.
        augment: What its augmentation takes.
    """

    def __init__(self, load: Work, augment: Work) -> None:
        self.loader, self.transform = Read(load), Mirror(augment)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.loader(index)), index % CLASSES


class Read:
    """The loader of pictures."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, index: int) -> torch.Tensor:
        mark = self.work.begin()
        picture = torch.full((3, SIDE, SIDE), index % 256, dtype=torch.uint8)
        self.work.complete(mark)
        return picture


class Mirror:
    """The augmentation of a picture."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, picture: torch.Tensor) -> torch.Tensor:
        mark = self.work.begin()
        mirrored = picture.flip(-1) if torch.rand(()) < 0.5 else picture
        self.work.complete(mark)
        return mirrored


def _job(workers: int, load_ms: float, augment_ms: float, step_ms: float) -> SlowBatches:
    return SlowBatches(workers, load_ms / 1e3, augment_ms / 1e3, step_ms / 1e3)


JOBS: tuple[SlowBatches, ...] = (
    _job(3, 3, 5, 138),
    _job(8, 3, 5, 138),
    _job(3, 2.0, 2.2, 138),
    _job(16, 2.5, 2, 138),
    _job(12, 5, 6, 150),
    _job(6, 5, 2, 100),
    _job(4, 2, 6, 200),
    _job(12, 4, 3, 180),
    _job(5, 6, 6, 120),
    _job(9, 2.5, 2.4, 130),
)
"""Input-bound by little and by much, by one stage or by two; near the balance on both sides; device-bound."""

WITHOUT = "-without-"


def find_job(name: str) -> SlowBatches:
    """Return the job of that name, or one without a stage, such as `...-without-load`."""
    name, _, stage = name.partition(WITHOUT)
    job = find_by_name(JOBS, name)
    return {"": job, "load": replace(job, load_s=0.0), "augment": replace(job, augment_s=0.0)}[stage]


# --- the bar -----------------------------------------------------------------------------------------------


STATE_S, ANSWER_S, HALF_S = 12.0, 45.0, 30.0
"""Bars of the first right state on the progress line, of the final answer, and of half of the answers."""
MAX_EFFICIENCY_OFF, MAX_GAIN_OFF = 0.02, 0.10
LOOP_S = 25.0
NEARLY = 1.1
"""Two stages of which one takes so many times as long as the other may both be named."""


@dataclass(frozen=True)
class Answered:
    """A job, its plain loops and what a diagnosis says of it.

    Attributes:
        job: The job.
        efficiency: Of the plain loop.
        gain: Of the plain loop without the longer stage over the one with it.
        result: The diagnosis; None if it failed.
        seconds: What it took.
        state_s: When the progress line told the state that it ended with; None: never.
        failure: Why there is no result.
    """

    job: SlowBatches
    efficiency: float
    gain: float
    result: Result | None
    seconds: float
    state_s: float | None
    failure: str = ""

    @property
    def named(self) -> str | None:
        return None if self.result is None else self.result.verdict.bottleneck

    @property
    def is_right(self) -> bool:
        """Return True if state and name are those of the plain loops; between two states, either one is right."""
        if self.result is None:
            return False
        lost, state = 1 - self.efficiency, self.result.verdict.state
        if state == "device_bound":
            return lost < LOSS_CLEARLY_SMALL
        if state == "undecided":
            return LOSS_WORTH_TOUCHING < lost < LOSS_OF_A_CLEAR_JOB
        times_s = {"load": self.job.load_s, "augment": self.job.augment_s}
        return lost > LOSS_WORTH_TOUCHING and NEARLY * times_s.get(self.named or "", 0.0) >= max(times_s.values())

    @property
    def efficiency_off(self) -> float:
        found = None if self.result is None else self.result.verdict.efficiency
        return math.inf if found is None else abs(found.estimate - self.efficiency)

    @property
    def gain_off(self) -> float | None:
        """Return the relative error of the gain; None if no input stage is named."""
        stages = () if self.result is None else self.result.stages
        found = next((s.gain_if_free for s in stages if s.name == self.named and s.name != "compute"), None)
        return None if found is None else abs(found.estimate / self.gain - 1)


LOSS_OF_A_CLEAR_JOB = 0.15


def answer_all(*, quick: bool = False) -> list[Answered]:
    """Time the plain loops, two at a time, then diagnose one job after the other."""
    jobs = JOBS[:3] if quick else JOBS
    loops = [name for job in jobs for name in (job.name, f"{job.name}{WITHOUT}{job.longer_stage}")]
    click.echo(f"{len(loops)} plain loops, {AT_ONCE} at a time …", err=True)
    timed = time_loops([f"benchmarks.slow_batches:{name}" for name in loops], LOOP_S, most_times=1)
    answered = []
    for job, loop, without in zip(jobs, timed[::2], timed[1::2], strict=True):
        click.echo(f"{job.name} … ", err=True, nl=False)
        gain = (without.batches / without.seconds) / (loop.batches / loop.seconds)
        answered.append(_answer(job, loop.efficiency, gain))
        click.echo(f"{answered[-1].named} in {answered[-1].seconds:.0f} s", err=True)
    return answered


def _answer(job: SlowBatches, efficiency: float, gain: float) -> Answered:
    told: list[tuple[float, str]] = []
    began_s = time.perf_counter()

    def listen(update: ProgressUpdate) -> None:
        if update.state is not None:
            told.append((time.perf_counter() - began_s, update.state))

    try:
        result, failure = diagnose(job.build(), progress=listen), ""
    except Exception as error:  # noqa: BLE001 - after any failure, the other jobs are still to be run
        result, failure = None, f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - began_s
    state = None if result is None else result.verdict.state
    state_s = next((at_s for at_s, told_state in told if told_state == state), None)
    return Answered(job, efficiency, gain, result, seconds, state_s, failure)


def answers_table(answered: Sequence[Answered]) -> str:
    """The jobs beside their plain loops, in markdown."""
    headers = ("job", "plain efficiency", "reported", "name", "plain gain", "gain off by", "state after", "took")
    rows = []
    for one in answered:
        verdict = None if one.result is None else one.result.verdict
        named = one.failure or f"{verdict.state if verdict else ''}, {one.named}"
        rows.append(
            (
                one.job.name,
                f"{one.efficiency:.1%}",
                interval_percent(verdict.efficiency if verdict else None),
                named if one.is_right else f"**{named}**",
                f"{one.gain:.2f}x",
                "–" if one.gain_off is None else f"{one.gain_off:.1%}",
                "–" if one.state_s is None else f"{one.state_s:.0f} s",
                f"{one.seconds:.0f} s",
            )
        )
    return markdown_table(headers, rows)


def check_answers(answered: Sequence[Answered]) -> list[Check]:
    """The bars on right answers, on time and on numbers."""
    wrong = [one.job.name for one in answered if not one.is_right]
    times_s = sorted(one.seconds for one in answered)
    middle_s = times_s[(len(times_s) - 1) // 2]
    late = [f"{one.job.name}: {one.seconds:.0f} s" for one in answered if one.seconds > ANSWER_S]
    late += [
        f"{one.job.name}: state after {one.state_s:.0f} s" if one.state_s else f"{one.job.name}: no state was told"
        for one in answered
        if one.state_s is None or one.state_s > STATE_S
    ]
    off = [
        f"{one.job.name}: efficiency off by {one.efficiency_off * 100:.1f} points"
        for one in answered
        if one.efficiency_off > MAX_EFFICIENCY_OFF
    ]
    off += [
        f"{one.job.name}: gain off by {one.gain_off:.0%}" for one in answered if (one.gain_off or 0.0) > MAX_GAIN_OFF
    ]
    return [
        Check(
            "verdicts on slow batches",
            "all right",
            f"{len(answered) - len(wrong)} of {len(answered)}",
            not wrong,
            tuple(wrong),
        ),
        Check(
            "time to the answer of slow batches",
            f"state ≤ {STATE_S:.0f} s; answer ≤ {ANSWER_S:.0f} s, half of them ≤ {HALF_S:.0f} s",
            f"at most {times_s[-1]:.0f} s, half of them within {middle_s:.0f} s",
            not late and middle_s <= HALF_S,
            tuple(late),
        ),
        Check(
            "numbers of slow batches against plain loops",
            "efficiency within 2 points, gain within 10 %",
            f"{len(answered) - len({line.partition(':')[0] for line in off})} of {len(answered)}",
            not off,
            tuple(off),
        ),
    ]


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def main(names: tuple[str, ...]) -> None:
    """Diagnose each job NAME, without its plain loops."""
    for name in names:
        one = _answer(find_job(name), math.nan, math.nan)
        click.echo(answers_table([one]))


if __name__ == "__main__":
    main()
