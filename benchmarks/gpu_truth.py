"""The truth by which figures of a GPU are judged: plain loops with marks on the device's own stream.

Copy, step and idle time come from the marks, so that the share of the step is the efficiency: it needs no
second loop, and does not depend on how far the host runs ahead of the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils.data import Dataset, get_worker_info

WARM_UP_S, WARM_UP_TURNS = 2.5, 2
"""A loop is begun after the longer of the two; a turn is one batch of each worker."""
MAX_KEPT = 4
_MAX_WORKERS = 128


class Marks:
    """Marks on the stream of a loop: CUDA's events; on the CPU, which does one thing after the other, a clock.

    Args:
        device: Device that the loop computes on.
        clock: A steady clock of the host.
    """

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        self._on_cuda, self._clock = device.type == "cuda", clock

    def mark(self) -> Any:
        """Return a mark that the device passes when it has done all that was launched before."""
        if not self._on_cuda:
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's own
        event.record()
        return event

    def seconds(self, first: Any, second: Any) -> float:
        """The time of the device between two marks; `wait` comes first."""
        return float(first.elapsed_time(second)) / 1000 if self._on_cuda else second - first

    def wait(self) -> None:
        """Wait until the device has passed all marks."""
        if self._on_cuda:
            torch.cuda.synchronize()


class Clocked(Dataset[Any]):
    """A dataset that counts what its samples take in the workers, in memory that all of them share.

    Args:
        inner: The dataset.
        clock: A steady clock of each worker.
    """

    def __init__(self, inner: Any, clock: Callable[[], float] = time.perf_counter) -> None:
        self._inner, self._clock = inner, clock
        self._taken = torch.zeros(_MAX_WORKERS, 2, dtype=torch.float64).share_memory_()  # type: ignore[no-untyped-call]  # torch's own

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, index: int) -> Any:
        began_s = self._clock()
        sample = self._inner[index]
        worker = get_worker_info()
        mine = self._taken.numpy()[0 if worker is None else worker.id]  # a row each: they do not wait for each other
        mine += (self._clock() - began_s, 1)
        return sample

    def taken(self) -> tuple[float, float]:
        """Seconds of all workers, and samples."""
        seconds, samples = self._taken.sum(0).tolist()
        return seconds, samples


@dataclass(frozen=True)
class LoopFacts:
    """A plain loop, over whole turns of its workers.

    Attributes:
        samples_per_s: Its throughput.
        efficiency: The share of the step.
        step_ms: Time of the device for the step of a batch.
        copy_ms: Time from before its copy to before its step.
        idle_ms: Time from the end of a step to the next copy.
        turns: Number of timed turns.
        seconds: Time that they took.
        worker_ms: Time of a worker for a sample; None if that was not counted.
    """

    samples_per_s: float
    efficiency: float
    step_ms: float
    copy_ms: float
    idle_ms: float
    turns: int
    seconds: float
    worker_ms: float | None = None

    def facts(self) -> dict[str, Any]:
        """For a line."""
        return {key: value for key, value in asdict(self).items() if value is not None}


class PlainLoop:
    """A training loop as a user writes it, with marks around each batch.

    Args:
        move: Copies a batch to the device.
        step: Trains on it.
        workers: Number of workers; they deliver in bursts, and a loop that ended within one would be wrong.
        marks: Marks on the loop's stream.
        samples: Counts the samples of a batch.
        clock: A steady clock of the host.
        clocked: The dataset, where it counts what its samples take.
    """

    def __init__(
        self,
        move: Callable[[Any], Any],
        step: Callable[[Any], object],
        workers: int,
        marks: Marks,
        samples: Callable[[Any], int],
        clock: Callable[[], float] = time.perf_counter,
        clocked: Clocked | None = None,
    ) -> None:
        self._move, self._step, self._turn, self._marks = move, step, max(1, workers), marks
        self._samples, self._clock, self._clocked = samples, clock, clocked
        self.kept: list[Any] = []
        """The first batches, on the device."""

    def run(self, batches: Iterable[Any], seconds: float, warm_up_s: float = WARM_UP_S) -> LoopFacts:
        """Train, and time whole turns from the end of the warm-up until the loop has lasted some seconds in all."""
        iterator = iter(batches)
        began_s, turns = self._clock(), 0
        while turns < WARM_UP_TURNS or self._clock() < began_s + warm_up_s:
            last = [self._train(next(iterator))[2] for _ in range(self._turn)][-1]
            turns += 1
        before, turns, samples = self._taken(), 0, 0
        marked = [(last, last, last)]
        while not turns or self._clock() < began_s + seconds:
            for _ in range(self._turn):
                batch = next(iterator)
                samples += self._samples(batch)
                marked.append(self._train(batch))
            turns += 1
        self._marks.wait()
        return self._conclude(marked, samples, turns, before)

    def _train(self, batch: Any) -> tuple[Any, Any, Any]:
        """Train on a batch; the marks are before its copy, before its step, and after it."""
        copy = self._marks.mark()
        moved = self._move(batch)
        step = self._marks.mark()
        self._step(moved)
        if len(self.kept) < MAX_KEPT:
            self.kept.append(moved)
        return copy, step, self._marks.mark()

    def _taken(self) -> tuple[float, float]:
        return (0.0, 0.0) if self._clocked is None else self._clocked.taken()

    def _conclude(
        self, marked: list[tuple[Any, Any, Any]], samples: int, turns: int, before: tuple[float, float]
    ) -> LoopFacts:
        apart, batches = self._marks.seconds, len(marked) - 1
        seconds = apart(marked[0][2], marked[-1][2])
        copy_s = sum(apart(copy, step) for copy, step, _ in marked[1:])
        step_s = sum(apart(step, end) for _, step, end in marked[1:])
        worker_s, made = (now - then for now, then in zip(self._taken(), before, strict=True))
        return LoopFacts(
            samples / seconds,
            step_s / seconds,
            1e3 * step_s / batches,
            1e3 * copy_s / batches,
            1e3 * (seconds - copy_s - step_s) / batches,
            turns,
            seconds,
            1e3 * worker_s / made if made else None,
        )


def time_step_alone(
    step: Callable[[Any], object],
    kept: list[Any],
    seconds: float,
    marks: Marks,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Milliseconds of a step alone, on batches that are on the device: a check of those in the plain loop."""
    for batch in kept:
        step(batch)
    first, began_s, steps = marks.mark(), clock(), 0
    for batch in _again_and_again(kept):
        step(batch)
        steps += 1
        if clock() >= began_s + seconds:
            break
    last = marks.mark()
    marks.wait()
    return 1e3 * marks.seconds(first, last) / steps


def _again_and_again(batches: list[Any]) -> Iterator[Any]:
    while True:
        yield from batches
