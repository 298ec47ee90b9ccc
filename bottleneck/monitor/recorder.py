"""The record of a run in the main process: waits of the loop, passes over loaders, steps, checkpoints.

In the loop it only counts and compares; the thread that writes does all else. Its size does not depend on the number of
batches.
"""

from __future__ import annotations

import heapq
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bottleneck.analysis.monitor import SETTLED_S, why_due
from bottleneck.monitor.making import Made
from bottleneck.monitor.memory import MemoryLook
from bottleneck.results.monitor import (
    BUCKETS,
    MAX_WORST,
    Checkpoint,
    Epoch,
    Event,
    Memory,
    SlowBatch,
    Summary,
    Validation,
    Waits,
    bucket_of,
    percentile,
)

MIN_SLOW_S = 0.01
"""Minimum wait of one of the worst batches [s], even in a short run."""
MAX_LOADERS = 16
MAX_PENDING = 10_000
"""Maximum events that wait to be written while the file blocks."""
QUEUE, HANDOFF = "queue", "handoff"


class LoaderRecord:
    """The totals of a loader, over all of its passes."""

    def __init__(self, number: int, kind: str, began_s: float) -> None:
        self.name, self.kind = f"{number} {kind}", kind
        self.batches = self.steps = self.passes = 0
        self.wait_s = self.longest_s = 0.0
        self.counts = [0] * BUCKETS
        self.trains = False
        self._written = 0, 0, 0.0, began_s, list(self.counts)

    def waits(self, at: float, rank: int, now_s: float) -> Waits | None:
        """Return the additions since the last call; None if there are none."""
        batches, steps, wait_s, since_s, before = self._written
        if self.batches == batches:
            return None
        counts = list(self.counts)
        self._written = self.batches, self.steps, self.wait_s, now_s, counts
        return Waits(
            at=at,
            rank=rank,
            loader=self.name,
            batches=self._written[0] - batches,
            steps=self._written[1] - steps,
            wait_s=self._written[2] - wait_s,
            passed_s=now_s - since_s,
            counts={at: now - was for at, (now, was) in enumerate(zip(counts, before, strict=True)) if now != was},
        )


@dataclass(eq=False)
class Pass:
    """One pass over a loader."""

    loader: LoaderRecord
    number: int
    began_s: float
    step: int
    """Batches of the loader before this pass."""
    batches: int = 0
    steps: int = 0
    wait_s: float = 0.0
    first_s: float = 0.0
    """Seconds from its beginning to its first batch."""
    last_s: float = 0.0
    """Time of its last batch [s]."""
    trains: bool = False
    has_given: bool = False
    """True if it gave a batch since the last optimizer step."""


@dataclass(frozen=True)
class _Slow:
    """A batch with a long wait, until the facts on its making are known."""

    at: float
    loader: str
    epoch: int
    step: int
    began_s: float
    ended_s: float
    find: Callable[[], Made | None]


class Recorder:
    """The record of a job, which becomes events.

    Args:
        rank: Rank of this process.
        clock: Monotonic time in seconds, shared with the workers.
        now: Seconds since 1970.
    """

    def __init__(
        self, rank: int = 0, clock: Callable[[], float] = time.perf_counter, now: Callable[[], float] = time.time
    ) -> None:
        self.rank, self.clock, self._now = rank, clock, now
        self.optimizer_steps = 0
        self._loaders: list[tuple[weakref.ref[Any] | None, LoaderRecord]] = []
        self._given: list[Pass] = []
        """Passes with a batch since the last step."""
        self._others: list[Pass] = []
        """Passes that have begun and are not known to train."""
        self._untold: deque[Pass] = deque(maxlen=MAX_LOADERS)
        """Passes that ended before any optimizer step: evaluations, or training without a PyTorch optimizer."""
        self._worst: list[float] = []
        self._slow_from_s = MIN_SLOW_S
        self._slow: deque[_Slow] = deque(maxlen=MAX_PENDING)
        self._events: deque[Event] = deque(maxlen=MAX_PENDING)
        self._began_s: float | None = None
        self._summed = 0.0, 0.0
        """Time and wait at the last judgement [s]."""
        self.due: str | None = None
        """Sentence with the reason for a diagnosis; None if there is none yet."""

    # --- in the loop ---------------------------------------------------------------------------------------

    def begin(self, dataset: Any, began_s: float) -> Pass:
        """Note the beginning of a pass over a loader, with the request for its first batch."""
        loader = self._loader_of(dataset, began_s)
        loader.passes += 1
        begun = Pass(loader, loader.passes, began_s, loader.batches)
        self._others.append(begun)
        if len(self._others) > MAX_LOADERS:
            self._end(self._others[0])
        return begun

    def gave(self, at: Pass, began_s: float, ended_s: float) -> bool:
        """Note a batch of a pass, and the times of its request and arrival; return True if it was slow."""
        wait_s, loader = ended_s - began_s, at.loader
        loader.counts[bucket_of(wait_s)] += 1
        loader.batches += 1
        loader.wait_s += wait_s
        at.batches += 1
        at.wait_s += wait_s
        at.last_s = ended_s
        loader.longest_s = max(loader.longest_s, wait_s)
        if at.batches == 1:
            at.first_s = ended_s - at.began_s
        if not at.has_given:
            at.has_given = True
            self._given.append(at)
        if at.steps and not at.trains:
            self._trains(at)
        if at.trains and self._others:
            for other in self._others[:]:
                self._end(other)
        return wait_s > self._slow_from_s and at.batches > 1  # the first batch belongs to the start of its epoch

    def note_slow(self, at: Pass, began_s: float, ended_s: float, find: Callable[[], Made | None]) -> None:
        """Keep the batch that has just arrived; `find` later returns the facts on its making."""
        if len(self._worst) < MAX_WORST:
            heapq.heappush(self._worst, ended_s - began_s)
        else:
            heapq.heapreplace(self._worst, ended_s - began_s)
        if len(self._worst) == MAX_WORST:
            self._slow_from_s = self._worst[0]
        loader = at.loader
        self._slow.append(_Slow(self._now(), loader.name, at.number, loader.batches, began_s, ended_s, find))

    def stepped(self, *_: object) -> None:
        """Note that an optimizer has made a step."""
        self.optimizer_steps += 1
        while self._untold:
            self._evaluated(self._untold.popleft())
        given, self._given = self._given, []
        for one in given:
            one.has_given = False
            one.steps += 1
            if one.trains:
                one.loader.steps += 1
            elif one.loader.trains:
                self._trains(one)

    def ended(self, at: Pass) -> None:
        """Note that a pass has come to its end."""
        if at.steps and not at.trains:
            self._trains(at)
        if at.has_given:  # the next step does not follow one of its batches
            at.has_given = False
            self._given.remove(at)
        self._end(at)

    def saved(self, seconds: float, path: str | None, place: tuple[str, int] | None) -> None:
        """Note that the job has saved a file."""
        file, line = place or (None, None)
        self._events.append(
            Checkpoint(
                at=self._now(), rank=self.rank, step=sum(one.batches for one in self._records()), seconds=seconds,
                path=path, file=file, line=line,
            )
        )  # fmt: skip

    def looked(self, look: MemoryLook, available_bytes: int | None = None) -> None:
        """Note a look at the memory of a process of this rank."""
        self._events.append(Memory(rank=self.rank, available_bytes=available_bytes, **look._asdict()))

    def _trains(self, at: Pass) -> None:
        """Note that a pass trains: a batch was requested after a step that followed one of its batches.

        A validation between two steps may also be followed by a step, but yields no batch after that.
        """
        at.trains = at.loader.trains = True
        at.loader.steps += at.steps
        if at in self._others:
            self._others.remove(at)
        self._begin_epoch(at)

    def _begin_epoch(self, at: Pass) -> None:
        self._events.append(
            Epoch(
                at=self._now(), rank=self.rank, loader=at.loader.name, epoch=at.number, step=at.step + 1,
                start_s=at.first_s,
            )
        )  # fmt: skip

    def _end(self, at: Pass) -> None:
        if at not in self._others:  # it trains, or has ended already
            return
        self._others.remove(at)
        if at.batches and self.optimizer_steps:
            self._evaluated(at)
        elif at.batches:
            self._untold.append(at)

    def _evaluated(self, at: Pass) -> None:
        self._events.append(
            Validation(
                at=self._now(), rank=self.rank, loader=at.loader.name, seconds=at.last_s - at.began_s,
                start_s=at.first_s, wait_s=at.wait_s, batches=at.batches,
            )
        )  # fmt: skip

    def _loader_of(self, dataset: Any, began_s: float) -> LoaderRecord:
        """Return the record of a dataset; datasets that a script makes for each epoch share one."""
        self._began_s = began_s if self._began_s is None else self._began_s
        kind = type(dataset).__name__
        for number, (reference, record) in enumerate(self._loaders):
            known = None if reference is None else reference()
            if known is dataset:
                return record
            if known is None and record.kind == kind:
                self._loaders[number] = _reference(dataset), record
                return record
        alike = [record for record in self._records() if record.kind == kind]
        if len(self._loaders) >= MAX_LOADERS:
            return (alike or [self._loaders[-1][1]])[-1]
        record = LoaderRecord(len(self._loaders), kind, began_s)
        self._loaders.append((_reference(dataset), record))
        return record

    def _records(self) -> Iterator[LoaderRecord]:
        return (record for _, record in list(self._loaders))

    # --- in the thread that writes -------------------------------------------------------------------------

    def settle(self) -> None:
        """Turn slow batches into events: the facts on their making have arrived by now."""
        while self._slow:
            slow = self._slow.popleft()
            self._events.append(self._described(slow, slow.find()))

    def events(self) -> Iterator[Event]:
        """Yield and remove all events so far, then yield the waits since the last call."""
        self.settle()
        while self._events:
            yield self._events.popleft()
        now_s, at = self.clock(), self._now()
        for record in self._records():
            if (waits := record.waits(at, self.rank, now_s)) is not None:
                yield waits

    def summary(self, *, ended: bool = False) -> Summary | None:
        """Return the totals of the run so far; None before its first batch."""
        if self._began_s is None:
            return None
        while self._untold and not self.optimizer_steps:
            self._begin_epoch(self._untold.popleft())
        records = [one for one in self._records() if one.trains] or list(self._records())
        counts: dict[int, int] = {}
        for record in records:
            for bucket, count in enumerate(record.counts):
                if count:
                    counts[bucket] = counts.get(bucket, 0) + count
        passed_s, wait_s = self.clock() - self._began_s, sum(one.wait_s for one in records)
        before_s, waited_s = self._summed
        if passed_s - before_s >= SETTLED_S:
            self.due = self.due or why_due(passed_s - before_s, wait_s - waited_s)
            self._summed = passed_s, wait_s
        return Summary(
            at=self._now(),
            rank=self.rank,
            batches=sum(counts.values()),
            passed_s=passed_s,
            wait_s=wait_s,
            p50_s=percentile(counts, 0.5),
            p99_s=percentile(counts, 0.99),
            longest_s=max((one.longest_s for one in records), default=0.0),
            due=self.due,
            ended=ended,
        )

    def _described(self, slow: _Slow, made: Made | None) -> SlowBatch:
        plain = SlowBatch(
            at=slow.at, rank=self.rank, loader=slow.loader, epoch=slow.epoch, step=slow.step,
            seconds=slow.ended_s - slow.began_s,
        )  # fmt: skip
        if made is None:
            return plain
        file, line, function, calls = made.line or (None, None, None, None)
        return SlowBatch(
            at=slow.at,
            rank=self.rank,
            loader=slow.loader,
            epoch=slow.epoch,
            step=slow.step,
            seconds=slow.ended_s - slow.began_s,
            worker=made.worker,
            pid=made.pid,
            indices=made.indices,
            stage=_stage_of(slow.began_s, slow.ended_s, made),
            stages=made.stages,
            slowest=made.slowest,
            slowest_s=made.slowest_s or None,
            file=None if file is None else os.path.abspath(file),
            line=line,
            function=function,
            calls=calls,
        )


def _stage_of(began_s: float, ended_s: float, made: Made) -> str:
    """Return the stage that took most of a wait."""
    half_s = (ended_s - began_s) / 2
    if made.began_s - began_s > half_s:  # its worker was starting, or at work on an earlier batch
        return QUEUE
    if ended_s - made.ended_s > half_s or not made.stages:
        return HANDOFF
    return max(made.stages, key=lambda name: made.stages[name])


def _reference(dataset: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(dataset)
    except TypeError:  # such as a list
        return None
