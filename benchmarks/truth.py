"""What planted stages really cost: plain loops over a plain DataLoader, with a clock around each of the stages.

The costs of the loader's stages are told of the loader alone, so their clocks are read in a loop that does nothing
else, and with no workers: a worker's thread that hands batches over takes the interpreter whenever the stages let it
go, and their clocks would show its time, which is the hand-off's. Those of the main process are read in a loop that
trains, with the workers.

What no clock at a stage shows is what it does to the code after it, which finds the processor's caches cold: to
collate 16 small images took 0.05 ms in a loop of its own, and 0.2 to 0.35 ms after 8 ms of other work. An estimate,
being the time that goes with the stage, has that in it.

Planted work lasts a given time by the clock; calling it, torchvision's own code around a transform and what else a
stage does come on top, and cost more where the machine is slow or disturbed. Nothing of the diagnosis runs here but
its counter of stolen time, so the estimates are judged by numbers that owe nothing to the way in which they were made.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, default_collate

from benchmarks.datasets import Collate, CollateMarked
from benchmarks.plain import plain_loader, plain_move
from benchmarks.planted import Layout, Planted
from bottleneck.measure.stolen import Repeats, StolenTime

WARM_UP_TURNS = 4
"""Batches of each worker that are let go: the first ones wait for the workers to start."""

MOST_RUNS = 3

SAMPLE, COLLATION = "(sample)", "(collation)"
"""Clocks around everything that a sample and a collation take; stages that are the rest of them are differences."""

_PARTS: dict[Layout, dict[str, str]] = {
    "torchvision": {"loader": "load", "transform": "augment"},
    "dict": {"loader": "load", "transform": "augment"},
    "annotated": {"loader": "load", "transform": "augment"},
    "finish": {"loader": "load", "transform": "augment"},
    "inline": {"transform": "augment"},
    "stream": {"transform": "augment"},
    "uncut": {},
    "marked": {"decode": "decode", "crop": "crop"},
    "composed": {"loader": "load", "transform": "augment"},
}
"""Attributes of the dataset that are called, and the stage that each of them is."""
_REST_OF_SAMPLE: dict[Layout, str] = {
    "finish": "finish", "inline": "load", "stream": "load", "uncut": "fetch", "marked": "other",
}  # fmt: skip

_clocks_s: defaultdict[str, float] = defaultdict(float)
"""Seconds on each clock of this process."""


class Clocked:
    """Something that is called, with a clock around it."""

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.name, self.call = name, call

    def __call__(self, *args: Any) -> Any:
        """What the call returns."""
        begun_s = time.perf_counter()
        result = self.call(*args)
        _clocks_s[self.name] += time.perf_counter() - begun_s
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
        self.collate = Clocked(COLLATION, collate)

    def __call__(self, samples: list[Any]) -> tuple[Any, dict[str, float]]:
        """The batch and the clocks."""
        batch = self.collate(samples)
        return batch, dict(_clocks_s)


def measure_truth(planted: Planted, seconds: float) -> dict[str, float]:
    """Run the loader alone and then the job for so long each, and return stage -> seconds per batch.

    Stages that have no clock are left out. A run in which the machine's hypervisor took much is made again.
    """
    alone, _ = _run_undisturbed(clocked_fields(planted) | {"num_workers": 0}, seconds, trains=False)
    workers = max(planted.num_workers, 1)
    found = stage_seconds(planted, {name: time_s / workers for name, time_s in clocks_per_batch(alone).items()})
    _, main_s = _run_undisturbed(clocked_fields(planted), seconds, trains=True)
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
    if isinstance(collate, Collate):
        # Only its work is planted; what the default collation does, the diagnosis finds in the hand-off.
        collate.work = SimpleNamespace(run=Clocked("collate", collate.work.run))  # type: ignore[assignment]  # a clock
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


def _run_undisturbed(
    fields: dict[str, Any], seconds: float, *, trains: bool
) -> tuple[list[dict[str, float]], dict[str, float]]:
    """Run up to three times; return what the run gave in which the least was stolen."""
    watch, machine, runs = StolenTime(), Repeats(time.perf_counter), []
    for _ in range(MOST_RUNS):
        watch.begin()
        found = _run(fields, seconds, trains=trains)
        stolen = watch.end(processes=1 + fields["num_workers"])
        runs.append((stolen.share, found))
        if not machine.wanted(stolen):
            break
    return min(runs, key=lambda run: run[0])[1]


def _run(fields: dict[str, Any], seconds: float, *, trains: bool) -> tuple[list[dict[str, float]], dict[str, float]]:
    """Return the clocks that came with each batch, and seconds per batch of what the main process does."""
    batches, turn = iter(plain_loader(fields)), max(fields["num_workers"], 1)
    device = torch.device(fields["device"])
    # The clocks of this process may have run before, and with no workers they are those of the samples.
    _clocks_s.clear()
    take = Clocked("next", batches.__next__)
    move = Clocked("copy", plain_move(fields))
    step = Clocked("compute", fields["train_step"])
    seen: list[dict[str, float]] = []
    begun, start = dict(_clocks_s), time.perf_counter()
    while len(seen) < (WARM_UP_TURNS + 2) * turn or time.perf_counter() - start < seconds:
        if len(seen) == WARM_UP_TURNS * turn:
            begun, start = dict(_clocks_s), time.perf_counter()
        batch, clocks = take()
        if trains:
            step(move(batch, device))
        seen.append(clocks)
    taken = len(seen) - WARM_UP_TURNS * turn
    main_s = {name: (_clocks_s[name] - begun.get(name, 0.0)) / taken for name in ("next", "copy", "compute")}
    return seen[WARM_UP_TURNS * turn :], main_s


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
    if "pad" in found:
        found["collate"] = clocks[COLLATION] - found["pad"]
    return found
