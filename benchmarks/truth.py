"""The real cost of planted stages: plain loops over the user's code, with a stage and without it.

The cost of a stage is what the loader alone gains when just this stage is taken out. So it is taken out: in its place
comes what it made of a first input, and batches are made with it and without it in turns, a tenth of a second each. A
clock around the stage would show less: what comes after a stage finds the processor's caches cold. Where a stage is no
piece of code that could be taken out, such as the rest of `__getitem__`, and for single transforms, whose times the
diagnosis reads from clocks too, it is a clock all the same.

The loops run where the stages run, in a worker, with its one thread for torch and its collation into shared memory;
but they hand nothing over, because a worker's thread that does takes the interpreter whenever the stages let it go,
and they would show its time, which is the hand-off's. What the main process does is clocked in a loop that trains, with
the workers.

Any collation has to write a batch into shared memory, which belongs to the hand-off: it is done without
the collation, too.

Planted work lasts a given time by the clock; calling it, torchvision's own code around a transform and what else a
stage does come on top, and cost more where the machine is slow or disturbed. Nothing of the diagnosis runs here but
its counter of stolen time, so the estimates are judged by numbers that owe nothing to the way in which they were made.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from benchmarks.datasets import CollateMarked
from benchmarks.plain import plain_loader, plain_move
from benchmarks.planted import Layout, Planted
from benchmarks.taken_out import CannotBeTakenOut, in_shared_memory, without
from bottleneck.loader import modes
from bottleneck.measure.ladder import Arm
from bottleneck.measure.rounds.turns import RepeatPolicy, StealTimeMeter

T = TypeVar("T")

WARM_UP_TURNS = 4
"""Batches of each worker that are let go: the first ones wait for the workers to start."""

MAX_RUNS = 3

TURN_S, MIN_TURNS = 0.1, 4

SAMPLE, COLLATION, WRITING = "(sample)", "(collation)", "(writing)"
"""Clocks around everything that a sample and a collation take, and around writing a batch into shared memory; stages
that are the rest of them are differences."""

_PARTS: dict[Layout, dict[str, str]] = {
    "torchvision": {"loader": "load", "transform": "augment"},
    "dict": {"loader": "load", "transform": "augment"},
    "annotated": {"loader": "load", "transform": "augment"},
    "finish": {"transform": "augment"},
    "inline": {"transform": "augment"},
    "stream": {"transform": "augment"},
    "uncut": {},
    "marked": {"decode": "decode", "crop": "crop"},
    "composed": {"loader": "load", "transform": "augment"},
}
"""Attributes of the dataset that are called, and the stage that each of them is."""
_REST_OF_SAMPLE: dict[Layout, str] = {
    "finish": "load", "inline": "load", "stream": "load", "uncut": "fetch", "marked": "other",
}  # fmt: skip

_CLOCKED = ("copy",)
"""Stages of which a clock says more: they are in the main process."""

clocks_s: defaultdict[str, float] = defaultdict(float)
"""Seconds on each clock of this process."""


class Clocked:
    """Something that is called, with a clock around it."""

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.name, self.call = name, call

    def __call__(self, *args: Any) -> Any:
        begun_s = time.perf_counter()
        result = self.call(*args)
        clocks_s[self.name] += time.perf_counter() - begun_s
        return result


class ClockedSamples(Dataset[Any]):
    """A dataset whose samples are clocked as a whole."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.sample = Clocked(SAMPLE, dataset.__getitem__)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.sample(index)


class ClockedStream(IterableDataset[Any]):
    """A stream whose items are clocked as a whole."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[Any]:
        take = Clocked(SAMPLE, iter(self.stream).__next__)
        while True:
            try:
                yield take()
            except StopIteration:
                return


class WithClocks:
    """A collate function whose batches come with what the clocks of their worker show."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate, self.write = Clocked(COLLATION, collate), Clocked(WRITING, in_shared_memory)

    def __call__(self, samples: list[Any]) -> tuple[Any, dict[str, float]]:
        batch = self.collate(samples)
        self.write(batch)
        return batch, dict(clocks_s)


class Stages(IterableDataset[Any]):
    """A worker's work for its batches, without handing them over; its one item is the reading of the clocks.

    Args:
        fields: Of the pipeline, with clocks.
        seconds: For so long, once warm.
    """

    def __init__(self, fields: Mapping[str, Any], seconds: float) -> None:
        self.dataset, self.collate = fields["dataset"], fields["collate_fn"]
        self.batch_size, self.seconds = fields["batch_size"], seconds

    def __iter__(self) -> Iterator[list[dict[str, float]]]:
        samples = iter(self.dataset) if isinstance(self.dataset, IterableDataset) else self._by_index()
        seen: list[dict[str, float]] = []
        start = time.perf_counter()
        while len(seen) < WARM_UP_TURNS + 2 or time.perf_counter() - start < self.seconds:
            if len(seen) == WARM_UP_TURNS:
                start = time.perf_counter()
            seen.append(self.collate(list(itertools.islice(samples, self.batch_size)))[1])
        yield seen[WARM_UP_TURNS:]

    def _by_index(self) -> Iterator[Any]:
        return (self.dataset[index] for index in range(len(self.dataset)))


class InTurns(IterableDataset[Any]):
    """A worker's work for its batches, in two ways, in turns; its one item is the time of a batch, turn by turn.

    Args:
        ways: Fields of the two pipelines.
        seconds: For so long.
    """

    def __init__(self, ways: Sequence[Mapping[str, Any]], seconds: float) -> None:
        self.ways, self.seconds = ways, seconds

    def __iter__(self) -> Iterator[list[tuple[float, ...]]]:
        makers = [batch_maker(fields) for fields in self.ways]
        found: list[tuple[float, ...]] = []
        begun_s = time.perf_counter()
        while len(found) < MIN_TURNS or time.perf_counter() - begun_s < self.seconds:
            found.append(tuple(_time_of_batch(make) for make in makers))
        yield found


def batch_maker(fields: Mapping[str, Any]) -> Callable[[], Any]:
    """Return what makes a batch as a worker does."""
    dataset, collate, size = fields["dataset"], fields.get("collate_fn", default_collate), fields["batch_size"]
    stream = iter(dataset) if isinstance(dataset, IterableDataset) else None
    indices = itertools.cycle(range(len(dataset))) if stream is None else iter(())

    def make() -> Any:
        if stream is not None:
            return collate(list(itertools.islice(stream, size)))
        chosen = list(itertools.islice(indices, size))
        if hasattr(dataset, "__getitems__"):
            return collate(dataset.__getitems__(chosen))
        return collate([dataset[index] for index in chosen])

    return make


def _time_of_batch(make: Callable[[], Any]) -> float:
    """Return what a batch takes, over a turn; a first one is let go, which meets what the other way has left."""
    make()
    begun_s, batches = time.perf_counter(), 0
    while batches < 2 or time.perf_counter() - begun_s < TURN_S:
        make()
        batches += 1
    return (time.perf_counter() - begun_s) / batches


def measure_truth(planted: Planted, seconds: float) -> dict[str, float]:
    """Run the loader alone and then the job for so long each, and return stage -> seconds per batch.

    Stages that can neither be taken out nor clocked are left out. A run in which the machine's hypervisor took much is
    made again.
    """
    workers = max(planted.num_workers, 1)
    alone = _undisturbed(lambda: _run_alone(planted, seconds), processes=2)
    found = stage_seconds(planted, {name: time_s / workers for name, time_s in clocks_per_batch(alone).items()})
    for stage in planted.costs_s_per_batch:
        with contextlib.suppress(CannotBeTakenOut):
            ways = (planted.build(), without(planted.build(), stage))
            if stage not in _CLOCKED:
                turns = _undisturbed(functools.partial(_run_in_turns, planted, ways, seconds), processes=2)
                found[stage] = statistics.median(whole - rest for whole, rest in turns) / workers
    main_s = _undisturbed(lambda: _run_job(planted, seconds), processes=1 + planted.num_workers)
    found["compute"] = main_s["compute"]
    if "copy" in planted.costs_s_per_batch:
        found["copy"] = main_s["copy"]
    if "handoff" in planted.costs_s_per_batch:
        # Its workers are far ahead: what the main process waits for is the taking over alone.
        found["handoff"] = main_s["next"]
    return found


def clocked_fields(planted: Planted) -> dict[str, Any]:
    """The fields of the pipeline with clocks around what was planted."""
    fields = planted.build()
    dataset, collate = fields["dataset"], fields.get("collate_fn", default_collate)
    for attribute, stage in _PARTS[planted.layout].items():
        if planted.layout == "composed" and attribute == "transform":
            _clock_single_transforms(dataset.transform)
        setattr(dataset, attribute, Clocked(stage, getattr(dataset, attribute)))
    if isinstance(collate, CollateMarked):
        collate.pad = Clocked("pad", collate.pad)  # type: ignore[method-assign,assignment]  # of this instance
    clocked = ClockedStream(dataset) if isinstance(dataset, IterableDataset) else ClockedSamples(dataset)
    return {**fields, "dataset": clocked, "collate_fn": WithClocks(collate)}


def _clock_single_transforms(composed: Any) -> None:
    """Put clocks around the transforms of a `Compose`, and around those of composed transforms in it."""
    for number, transform in enumerate(composed.transforms):
        if hasattr(transform, "transforms"):
            _clock_single_transforms(transform)
        else:
            composed.transforms[number] = Clocked(type(transform).__name__, transform)


def _undisturbed(run: Callable[[], T], *, processes: int) -> T:
    """Run up to three times; return what the run gave in which the least was stolen."""
    watch, machine, runs = StealTimeMeter(), RepeatPolicy(time.perf_counter), []
    for _ in range(MAX_RUNS):
        watch.begin()
        found = run()
        stolen = watch.end(processes=processes)
        runs.append((stolen.share, found))
        if not machine.wanted(Arm(modes.ALL, "loader"), stolen):
            break
    return min(runs, key=lambda run: run[0])[1]


def _run_alone(planted: Planted, seconds: float) -> list[dict[str, float]]:
    """Return the clocks of one worker after each batch; without workers, of this process."""
    # The clocks of this process may have run before, and a worker inherits them.
    clocks_s.clear()
    modes = Stages(clocked_fields(planted), seconds)
    (seen,) = DataLoader(modes, batch_size=None, collate_fn=list, num_workers=min(planted.num_workers, 1))
    return cast("list[dict[str, float]]", seen)


def _run_in_turns(planted: Planted, ways: Sequence[Mapping[str, Any]], seconds: float) -> list[tuple[float, ...]]:
    """Return what a batch took a worker in each of the ways, turn by turn; without workers, this process."""
    workers = min(planted.num_workers, 1)
    (turns,) = DataLoader(InTurns(ways, seconds), batch_size=None, collate_fn=list, num_workers=workers)
    return cast("list[tuple[float, ...]]", turns)


def _run_job(planted: Planted, seconds: float) -> dict[str, float]:
    """Return seconds per batch of what the main process does."""
    fields = planted.build()
    batches, turn = iter(plain_loader(fields)), max(fields["num_workers"], 1)
    device = torch.device(fields["device"])
    take = Clocked("next", batches.__next__)
    move = Clocked("copy", plain_move(fields))
    step = Clocked("compute", fields["train_step"])
    taken, begun, start = 0, dict(clocks_s), time.perf_counter()
    while taken < (WARM_UP_TURNS + 2) * turn or time.perf_counter() - start < seconds:
        if taken == WARM_UP_TURNS * turn:
            begun, start = dict(clocks_s), time.perf_counter()
        step(move(take(), device))
        taken += 1
    counted = taken - WARM_UP_TURNS * turn
    return {name: (clocks_s[name] - begun.get(name, 0.0)) / counted for name in ("next", "copy", "compute")}


def clocks_per_batch(seen: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return by how much each clock goes on from batch to batch; at least two are needed."""
    first, last = seen[0], seen[-1]
    return {name: (last_s - first.get(name, 0.0)) / (len(seen) - 1) for name, last_s in last.items()}


def stage_seconds(planted: Planted, clocks: Mapping[str, float]) -> dict[str, float]:
    """Return stage -> seconds per batch, from clocks that may lie inside one another."""
    found = {name: time_s for name, time_s in clocks.items() if name in planted.costs_s_per_batch}
    rest = _REST_OF_SAMPLE.get(planted.layout)
    if rest is not None:
        found[rest] = clocks[SAMPLE] - sum(found.get(stage, 0.0) for stage in _PARTS[planted.layout].values())
    if "collate" in planted.costs_s_per_batch:
        found["collate"] = clocks[COLLATION] - clocks.get(WRITING, 0.0) - found.get("pad", 0.0)
    return found
