"""`bottleneck.workers` on planted loaders, against a sweep of plain loops over all numbers of workers.

python -m benchmarks.counts [--quick] [--only NAME]
"""

from __future__ import annotations

import fcntl
import hashlib
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.checks import Check, find_by_name, markdown_table, off_list
from bottleneck.errors import BottleneckError
from bottleneck.measure.machine.limits import usable_cores
from bottleneck.tuner.workers import SECONDS, Workers, workers

BEST_TIMES, GIVEN_TIMES, LATE_S = 1.05, 1.02, 1.0
"""The bars: times what the best number takes, times what the given one takes, seconds beyond the time that it has."""
_SWEPT_S, _SWEPT_QUICK_S = 1.5, 0.6
_JUDGED, _JUDGED_QUICK = 5, 3
"""Times that the numbers to judge are measured again in turns: of a sweep, the fastest is also the luckiest."""
_BATCH = 16
_LENGTH = 1_000_000


class Planted(Dataset[Any]):
    """Samples that take some work.

    Args:
        work: Done for each.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> Any:
        self.work()
        return torch.zeros(3, 16, 16), index % 10


def nothing() -> None:
    """Take no time."""


def compute(rounds: int) -> None:
    """Compute in Python, of which each round takes about 50 ns of a core, on a busy machine too."""
    total = 0
    for value in range(rounds):
        total += value


def mixed(rounds: int, seconds: float) -> None:
    """Compute, and wait."""
    compute(rounds)
    time.sleep(seconds)


def in_threads(work: Callable[[], object]) -> None:
    """Do it in four threads of a worker."""
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def hashed(megabytes: float) -> None:
    """Compute without the interpreter's lock."""
    hashlib.sha256(bytes(int(megabytes * 1e6))).digest()


def one_at_a_time(seconds: float) -> None:
    """Wait, as for a disk with a single arm."""
    with open(__file__) as arm:
        fcntl.flock(arm, fcntl.LOCK_EX)
        time.sleep(seconds)


_WORKS: dict[str, Callable[[], object]] = {
    "waits 2 ms": partial(time.sleep, 0.002),
    "waits 30 ms": partial(time.sleep, 0.030),
    "computes 2 ms": partial(compute, 40_000),
    "computes 1 ms, waits 3 ms": partial(mixed, 20_000, 0.003),
    "tiny": nothing,
    "held by the interpreter's lock": partial(in_threads, partial(compute, 10_000)),
    "four cores' worth": partial(in_threads, partial(hashed, 0.5)),
    "one at a time": partial(one_at_a_time, 0.001),
}
_SETTINGS: tuple[tuple[str, int, float | None], ...] = (
    ("no workers", 0, None), ("six workers", 6, None), ("one worker, a step of 40 ms", 1, 0.040),
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A planted loader, with what it is given."""

    name: str
    work: Callable[[], object]
    given: int
    step_s: float | None

    def loader(self, count: int) -> DataLoader[Any]:
        """It, with some number of workers."""
        return DataLoader(Planted(self.work), _BATCH, shuffle=True, num_workers=count)


JOBS = tuple(
    Job(f"{name}; {setting}", work, given, step_s)
    for name, work in _WORKS.items()
    for setting, given, step_s in _SETTINGS
)


@dataclass(frozen=True)
class Counted:
    """The number found for a loader, and the time of a batch in plain loops.

    Attributes:
        job: The loader.
        found: The record; None if it failed.
        batch_s: By number of workers, of the one found, the one given, and the best of the sweep, in turns.
        best: The number that was the fastest in the sweep.
        failure: Why there is no record.
    """

    job: Job
    found: Workers | None
    batch_s: Mapping[int, float]
    best: int
    failure: str = ""

    @property
    def times_best(self) -> float:
        """Times what the best number takes that the one found does."""
        assert self.found is not None  # where it is asked for
        return self.batch_s[self.found.num_workers] / self.batch_s[self.best]

    @property
    def times_given(self) -> float:
        """Times what the given number takes that the one found does."""
        assert self.found is not None  # where it is asked for
        return self.batch_s[self.found.num_workers] / self.batch_s[self.job.given]

    @property
    def miss(self) -> str:
        """Return the fault; empty if there is none."""
        if self.found is None:
            return self.failure
        wrong = []
        if self.times_best > BEST_TIMES:
            wrong.append(f"{self.found.num_workers} workers take {self.times_best:.2f}x as long as {self.best}")
        if self.times_given > GIVEN_TIMES:
            wrong.append(f"{self.times_given:.2f}x as long as the {self.job.given} that were given")
        if self.found.seconds > SECONDS + LATE_S:
            wrong.append(f"took {self.found.seconds:.1f} s")
        return "; ".join(wrong)


def count_all(jobs: Iterable[Job] = JOBS, *, quick: bool = False) -> list[Counted]:
    """Find the workers of each loader, and sweep over all numbers."""
    found = []
    for job in jobs:
        click.echo(f"workers of {job.name} … ", err=True, nl=False)
        found.append(_count(job, quick=quick))
        click.echo(found[-1].miss or "held", err=True)
    return found


def _count(job: Job, *, quick: bool) -> Counted:
    try:
        found = workers(job.loader(job.given), job.step_s, fresh=True)
    except BottleneckError as error:
        return Counted(job, None, {}, job.given, str(error))
    seconds = _SWEPT_QUICK_S if quick else _SWEPT_S
    swept = {count: batch_s(job, count, seconds) for count in _swept_counts(job)}
    best = min(swept, key=swept.__getitem__)
    judged: dict[int, list[float]] = {count: [] for count in (found.num_workers, job.given, best)}
    for turn in range(_JUDGED_QUICK if quick else _JUDGED):
        for count in sorted(judged, reverse=turn % 2 == 1):
            judged[count].append(batch_s(job, count, seconds))
    return Counted(job, found, {count: statistics.median(times) for count, times in judged.items()}, best)


def _swept_counts(job: Job) -> Iterator[int]:
    yield from (0, 1, 2, 3, 4, 6, 8)
    yield from {4 * round(usable_cores()), job.given} - {0, 1, 2, 3, 4, 6, 8}


def batch_s(job: Job, count: int, seconds: float) -> float:
    """Return a plain loop's time for a batch with that many workers, over whole turns of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more workers than cores are meant
        batches = iter(job.loader(count))
    turn, step_s, taken = max(1, count), job.step_s or 0.0, 0
    for _ in range(3 * turn):  # the queue that has filled while they started
        next(batches)
        time.sleep(step_s)
    began_s = time.perf_counter()
    while taken % turn or time.perf_counter() - began_s < seconds:
        next(batches)
        time.sleep(step_s)
        taken += 1
    return (time.perf_counter() - began_s) / taken


def counts_table(counted: Sequence[Counted]) -> str:
    """Return the numbers found, and how they compare, in markdown."""
    rows = [
        (
            one.job.name,
            "–" if one.found is None else f"{one.found.num_workers}",
            f"{one.best}",
            "–" if one.found is None else f"{one.times_best:.2f}x",
            "–" if one.found is None else f"{one.times_given:.2f}x",
            "–" if one.found is None else f"{one.found.seconds:.1f} s",
            "**off**" if one.miss else "held",
        )
        for one in counted
    ]
    return markdown_table(("loader", "found", "best of a sweep", "takes, of the best", "of the given", "in", ""), rows)


def check_counts(counted: Sequence[Counted]) -> Check:
    """The bar on what `bottleneck.workers` finds."""
    missed = [one for one in counted if one.miss]
    return Check(
        "`bottleneck.workers`, against a sweep of plain loops",
        "within 5 % of the best, never slower than the given number, within 15 s",
        f"{len(counted) - len(missed)} of {len(counted)}",
        not missed,
        tuple(f"{one.job.name}: {one.miss}" for one in missed),
    )


@click.command()
@click.option("--quick", is_flag=True, help="Shorter loops.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this loader.")
def main(quick: bool, only: tuple[str, ...]) -> None:
    """Find the workers of the planted loaders, and print what was found."""
    try:
        chosen = [find_by_name(JOBS, name) for name in only] or JOBS
    except KeyError as error:
        raise click.BadParameter(str(error.args[0]), param_hint="--only") from error
    counted = count_all(chosen, quick=quick)
    check = check_counts(counted)
    click.echo(f"{counts_table(counted)}\n\n{check.measured}\n\n{off_list([check])}")
    sys.exit(not check.held)


if __name__ == "__main__":
    main()
