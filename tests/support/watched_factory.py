"""Stacks of invented jobs, as py-spy would have recorded them: no process, no clock, and random draws that repeat."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bottleneck.results.records import SCHEMA_VERSION, Interval, Tool
from bottleneck.results.stacks import Clocks, Frame, ProcessStacks, Stack, ThreadStacks, Watched
from bottleneck.results.watched import (
    WatchedEdit,
    WatchedLine,
    WatchedRank,
    WatchedResult,
    WatchedVerdict,
    WatchedWorkers,
)

SITE = "/venv/lib/python3.12/site-packages"
TORCH = f"{SITE}/torch"
LIB = "/usr/lib/python3.12"
LOADER = f"{TORCH}/utils/data/dataloader.py"
SCRIPT = "/job/train.py"
DATA = "/job/data.py"


def at(file: str, line: int, function: str) -> Frame:
    """A frame."""
    return Frame(file, line, function)


MAIN = at(SCRIPT, 9, "main")
"""The line of the loop's head, in `LOOP`."""
LOOP = """\
import torch
from data import Images


def main():
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = torch.utils.data.DataLoader(Images())
    for x, y in loader:
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
"""
_TOP = at(SCRIPT, 15, "<module>")
_NEXT = at(LOADER, 730, "_BaseDataLoaderIter.__next__")

_SELECT = (
    at(f"{LIB}/multiprocessing/connection.py", 257, "_ConnectionBase.poll"),
    at(f"{LIB}/selectors.py", 415, "select"),
)
WAITS = (
    _TOP,
    MAIN,
    _NEXT,
    at(LOADER, 1480, "_MultiProcessingDataLoaderIter._get_data"),
    at(f"{LIB}/multiprocessing/queues.py", 113, "Queue.get"),
    *_SELECT,
)
"""The main process waits for a batch of its workers."""
MAKES = (
    _TOP,
    MAIN,
    _NEXT,
    at(LOADER, 780, "_SingleProcessDataLoaderIter._next_data"),
    at(f"{TORCH}/utils/data/_utils/fetch.py", 52, "fetch"),
    at(DATA, 12, "Images.__getitem__"),
)
"""It makes one itself, without workers."""
FORWARD = (_TOP, at(SCRIPT, 10, "main"), at(f"{TORCH}/nn/modules/module.py", 1750, "Module._call_impl"))
BACKWARD = (_TOP, at(SCRIPT, 11, "main"), at(f"{TORCH}/_tensor.py", 630, "Tensor.backward"))
OPTIMIZER = (_TOP, at(SCRIPT, 12, "main"), at(f"{TORCH}/optim/optimizer.py", 490, "Optimizer.step"))
TRAINS = (FORWARD, BACKWARD, OPTIMIZER)

_WORKER = (at("<string>", 1, "<module>"), at(f"{TORCH}/utils/data/_utils/worker.py", 350, "_worker_loop"))
WORKS = (*_WORKER, at(f"{TORCH}/utils/data/_utils/fetch.py", 52, "fetch"), at(DATA, 12, "Images.__getitem__"))
"""A worker in the dataset."""
IDLES = (*_WORKER, *_SELECT)
"""A worker that has nothing to do."""


def mixed(parts: Mapping[Stack, int], seed: int = 0) -> tuple[Stack, ...]:
    """So many of each stack, in random order."""
    stacks = [stack for stack, count in parts.items() for _ in range(count)]
    random.Random(seed).shuffle(stacks)
    return tuple(stacks)


def loop_of(*, waits: int = 0, makes: int = 0, trains: int = 0) -> tuple[Stack, ...]:
    """Samples of a main process."""
    parts = {WAITS: waits, MAKES: makes}
    for number, stack in enumerate(TRAINS):
        parts[stack] = trains // 3 + (number < trains % 3)
    return mixed(parts)


def make_process(pid: int, *threads: Sequence[Stack], parent: int = 1, **changes: Any) -> ProcessStacks:
    """A process with its threads, the first of which is the main one."""
    names = ("MainThread", *(f"Thread-{number}" for number in range(1, len(threads))))
    found = tuple(ThreadStacks(name, tuple(stacks)) for name, stacks in zip(names, threads, strict=False))
    process = ProcessStacks(pid, parent, ("python", "train.py", "--epochs", "3"), found)
    return replace(process, **changes)


def make_watched(*processes: ProcessStacks, **changes: Any) -> Watched:
    """A job of some processes, with the source of its loop."""
    watched = Watched(processes[0].pid, 13.0, processes, {SCRIPT: LOOP})
    return replace(watched, **changes)


def make_job(*, waits: int = 0, makes: int = 0, trains: int = 0, busy: int = 0, idle: int = 0) -> Watched:
    """A job of one process with one worker, if that was seen at anything."""
    main = make_process(100, loop_of(waits=waits, makes=makes, trains=trains))
    if not busy + idle:
        return make_watched(main)
    clocks = Clocks(cpu_s=9.0, queued_s=0.1, read_bytes=10**6)
    return make_watched(main, make_process(101, mixed({WORKS: busy, IDLES: idle}), parent=100, clocks=clocks))


def make_watched_result(**changes: Any) -> WatchedResult:
    """A job that waits, of two ranks, and that needs an edit before it can be measured; for tests of reports."""
    share = Interval(0.62, 0.55, 0.69)
    none, little = Interval(0.0, 0.0, 0.01), Interval(0.02, 0.01, 0.05)
    rank = WatchedRank(4711, 1, 512, share, Interval(0.6, 0.53, 0.67), little, none, Interval(0.38, 0.31, 0.45), 0.41)
    result = WatchedResult(
        schema_version=SCHEMA_VERSION,
        kind="watched",
        tool=Tool("torch-bottleneck", "0.1.0"),
        created="2025-01-31T12:00:00+00:00",
        pid=4700,
        command=("python", "-u", "train.py", "--data", "shards"),
        seconds=13.4,
        verdict=WatchedVerdict("input_bound", "Rank 1 waits for batches 62 % (55–69 %) of its time.", "watched", share),
        at_most=1 / 0.31,
        ranks=(rank, replace(rank, pid=4710, rank=0, input_share=little, device_busy=None)),
        workers=WatchedWorkers(4, Interval(0.97, 0.94, 0.99), 0.88, 0.07),
        lines=(
            WatchedLine("main", "/job/train.py", 31, "main", 0.6),
            WatchedLine("worker", "/job/data.py", 12, "Shards.__getitem__", 0.81, "read"),
            WatchedLine("main", "/job/ahead.py", 7, "Ahead._fill", 0.5, None, "Thread-3 (_fill)"),
        ),
        edit=WatchedEdit("/job/train.py", 31, "x, y = get_batch()", "x, y = next(batches)",
                         "batches = bottleneck.watch(get_batch)"),
        next=(("bottleneck", "run", "train.py", "--data", "shards"),),
    )  # fmt: skip
    return replace(result, **changes)
