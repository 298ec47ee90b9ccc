"""Events of a job that is monitored: one line of JSON each, and what a file of them adds up to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

EVENTS_VERSION = 1
MAX_WORST = 100
"""Batches that a report lists, and that a run keeps count of."""


# --- waits -------------------------------------------------------------------------------------------------

BUCKETS_PER_DOUBLING = 8
BUCKETS = 32 * BUCKETS_PER_DOUBLING
"""From a microsecond to more than an hour."""
_MIN_S = 1e-6


def bucket_of(seconds: float) -> int:
    """The bucket of a histogram that counts a wait; each reaches a tenth further than where it begins."""
    if seconds <= _MIN_S:
        return 0
    return min(BUCKETS - 1, int(math.log2(seconds / _MIN_S) * BUCKETS_PER_DOUBLING))


def seconds_of(bucket: int) -> float:
    """The middle of a bucket [s]."""
    return _MIN_S * math.pow(2, (bucket + 0.5) / BUCKETS_PER_DOUBLING)


def percentile(counts: dict[int, int], share: float) -> float | None:
    """The wait [s] that a share of the batches stays below, known to a twentieth; None without any batch."""
    wanted = share * sum(counts.values())
    passed = 0
    for bucket in sorted(counts):
        passed += counts[bucket]
        if passed >= wanted:
            return seconds_of(bucket)
    return None


# --- events ------------------------------------------------------------------------------------------------


class Event(msgspec.Struct, tag_field="event", frozen=True, kw_only=True):
    """Something that happened in a job.

    Attributes:
        at: Seconds since 1970.
        rank: The process that it happened in, among those of the job.
    """

    at: float
    rank: int = 0


class Start(Event, tag="start", frozen=True, kw_only=True):
    """The monitoring began.

    Attributes:
        version: That of these events.
        world: How many ranks the job has.
        command: What was started; empty where a `with` began it.
    """

    version: int = EVENTS_VERSION
    world: int = 1
    host: str = ""
    pid: int = 0
    command: list[str] = []


class Waits(Event, tag="waits", frozen=True, kw_only=True):
    """Batches of a loader since the last such event.

    Attributes:
        loader: Its number, in the order in which loaders are first used, and the class of its dataset.
        batches: How many it gave.
        steps: Steps of an optimizer that followed on them.
        wait_s: Time for which the loop waited for them.
        counts: How many waits fell into each bucket of the histogram.
        passed_s: Time since the last such event, or since the loader was first used.
    """

    loader: str
    batches: int
    steps: int
    wait_s: float
    counts: dict[int, int]
    passed_s: float


class SlowBatch(Event, tag="slow_batch", frozen=True, kw_only=True):
    """A batch that the loop waited for longer than for all but 99 others so far.

    Attributes:
        loader: As in `Waits`.
        epoch: Which pass over the loader.
        step: Which batch of the loader, over all passes.
        seconds: How long the loop waited.
        worker: That made it; None: the main process, or it is not known.
        pid: The process that made it.
        indices: Of its samples, as the sampler gave them.
        stage: The stage that took the longest; `queue` where it was not begun for half of the wait, `handoff` where it
            lay ready for half of it.
        stages: Seconds in each stage.
        slowest: The index of the sample that was seen at work most often, where samples are fetched one by one.
        slowest_s: For about how long.
        file, line, function: The user's line that was seen most often while it was made.
        calls: What that line called.
    """

    loader: str
    epoch: int
    step: int
    seconds: float
    worker: int | None = None
    pid: int | None = None
    indices: list[Any] | None = None
    stage: str | None = None
    stages: dict[str, float] = {}
    slowest: Any = None
    slowest_s: float | None = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    calls: str | None = None


class Epoch(Event, tag="epoch", frozen=True, kw_only=True):
    """A pass over a loader that trains has begun.

    Attributes:
        loader: As in `Waits`.
        epoch: Which pass, from 1.
        step: Which batch of the loader it began with.
        start_s: From its beginning to its first batch: workers start, and make one.
    """

    loader: str
    epoch: int
    step: int
    start_s: float


class Validation(Event, tag="validation", frozen=True, kw_only=True):
    """A pass over a loader in which no optimizer stepped.

    Attributes:
        loader: As in `Waits`.
        seconds: From its beginning to its last batch.
        start_s: To its first batch.
        wait_s: For its batches, the first one included.
        batches: How many.
    """

    loader: str
    seconds: float
    start_s: float
    wait_s: float
    batches: int


class Checkpoint(Event, tag="checkpoint", frozen=True, kw_only=True):
    """A call that saved a file.

    Attributes:
        step: Batches that all loaders had given.
        seconds: What it took.
        path: The file, where it has a name.
        file, line: The user's line that saved.
    """

    step: int
    seconds: float
    path: str | None = None
    file: str | None = None
    line: int | None = None


class Memory(Event, tag="memory", frozen=True, kw_only=True):
    """The memory of a process of the job: of the main one each minute, of a worker with a batch that it makes.

    Attributes:
        worker: Its number; None: the main process.
        pid: The process.
        private_bytes: Memory that would be free if it ended.
        resident_bytes: Memory that it uses, with what it shares with others.
        python_blocks: Blocks of memory that Python has allocated for objects.
        grown: Entries of containers that have grown since they were first seen, those with the most new ones.
        grown_bytes: Estimated memory of their new entries; unknown for the cache of a function.
        available_bytes: Memory that the machine, or its container, has left; of the main process only.
    """

    worker: int | None = None
    pid: int = 0
    private_bytes: int = 0
    resident_bytes: int = 0
    python_blocks: int = 0
    grown: dict[str, int] = {}
    grown_bytes: dict[str, int] = {}
    available_bytes: int | None = None


class Summary(Event, tag="summary", frozen=True, kw_only=True):
    """The run so far; one each minute, and one at the end.

    Attributes:
        batches: Of the loaders that train.
        passed_s: Time since the first of them.
        wait_s: For how long the loop waited for them.
        p50_s, p99_s, longest_s: Waits of the loop; the first two known to a twentieth.
        due: Why the job should be diagnosed; None: nothing speaks for it.
        ended: It is the last event of the run.
    """

    batches: int
    passed_s: float
    wait_s: float
    p50_s: float | None
    p99_s: float | None
    longest_s: float
    due: str | None = None
    ended: bool = False


AnyEvent = Start | Waits | SlowBatch | Epoch | Validation | Checkpoint | Memory | Summary
_decode = msgspec.json.Decoder(AnyEvent).decode
_FIRST = b'{"event":"'


def as_line(event: Event) -> bytes:
    """An event as its line, which ends with a newline."""
    return msgspec.json.encode(event) + b"\n"


def are_events(beginning: str) -> bool:
    """Tell whether a text begins like a file of events."""
    return beginning.lstrip("\n").encode("utf-8", "replace").startswith(_FIRST)


_MAX_ACCUMULATED = 256
"""Batches for each step of an optimizer in a loader that trains."""

_ENDED_S = 600.0
"""Seconds without a look after which a process has ended: a validation may come between two."""

# --- a file of them ----------------------------------------------------------------------------------------


@dataclass
class LoaderWaits:
    """Waits for the batches of a loader in one rank."""

    rank: int
    loader: str
    batches: int = 0
    steps: int = 0
    wait_s: float = 0.0
    began_at: float = math.inf
    ended_at: float = 0.0
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, waits: Waits) -> None:
        self.began_at = min(self.began_at, waits.at - waits.passed_s)
        self.ended_at = max(self.ended_at, waits.at)
        self.batches += waits.batches
        self.steps += waits.steps
        self.wait_s += waits.wait_s
        for bucket, count in waits.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count


@dataclass
class Monitored:
    """The sum of a run's events."""

    command: Sequence[str] = ()
    world: int = 1
    waits: dict[tuple[int, str], LoaderWaits] = field(default_factory=dict)
    worst: list[SlowBatch] = field(default_factory=list)
    """At most 100, the longest wait first."""
    epochs: list[Epoch] = field(default_factory=list)
    validations: list[Validation] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    memory: dict[tuple[int, int | None, int], list[Memory]] = field(default_factory=dict)
    """Looks at the processes that live, by rank, worker and process."""
    hosts: dict[int, str] = field(default_factory=dict)
    """The machine of each rank."""
    ended: bool = False
    """The job came to its end: it was not killed, and does not run any more."""
    unread: int = 0
    """Lines that are no event of this version; the last one of a job that was killed may be cut."""

    @property
    def training(self) -> list[LoaderWaits]:
        """Loaders whose batches an optimizer's steps followed; all of them where none was."""
        # A validation that is broken off is followed by a step, too.
        found = [one for one in self.waits.values() if one.steps > 1 and one.steps * _MAX_ACCUMULATED >= one.batches]
        return found or list(self.waits.values())

    def passed_s(self, rank: int) -> float:
        """Time from the first batch of a rank to the last; 0 without any."""
        found = [one for one in self.waits.values() if one.rank == rank]
        return max((one.ended_at for one in found), default=0.0) - min((one.began_at for one in found), default=0.0)

    def share(self, found: Iterable[LoaderWaits]) -> float | None:
        """The share of the time for which the loop waited for some loaders, over all ranks; None: not known."""
        waits = tuple(found)
        passed_s = sum(self.passed_s(rank) for rank in {one.rank for one in waits})
        return min(1.0, sum(one.wait_s for one in waits) / passed_s) if passed_s > 0 else None

    def _begin(self, start: Start) -> None:
        """Forget what an earlier run of this rank has appended to the same file."""
        self.command, self.world, self.ended = tuple(start.command), start.world, False
        self.hosts[start.rank] = start.host
        self.waits = {key: waits for key, waits in self.waits.items() if key[0] != start.rank}
        self.memory = {key: looks for key, looks in self.memory.items() if key[0] != start.rank}
        for name in ("worst", "epochs", "validations", "checkpoints"):
            setattr(self, name, [event for event in getattr(self, name) if event.rank != start.rank])

    def add(self, event: AnyEvent) -> None:
        """Take in an event, in the order of the file."""
        match event:
            case Start():
                self._begin(event)
            case Waits():
                key = event.rank, event.loader
                self.waits.setdefault(key, LoaderWaits(*key)).add(event)
            case SlowBatch():
                self.worst.append(event)
                if len(self.worst) > 2 * MAX_WORST:
                    self._sort()
            case Epoch():
                self.epochs.append(event)
            case Validation():
                self.validations.append(event)
            case Checkpoint():
                self.checkpoints.append(event)
            case Memory():
                self._add_look(event)
            case Summary():
                self.ended |= event.ended

    def _add_look(self, look: Memory) -> None:
        """Add a look at a process; those of its rank that were not looked at for long have ended."""
        for key, looks in list(self.memory.items()):
            if key[0] == look.rank and looks[-1].at < look.at - _ENDED_S:
                del self.memory[key]
        self.memory.setdefault((look.rank, look.worker, look.pid), []).append(look)

    def _sort(self) -> None:
        self.worst = sorted(self.worst, key=lambda batch: -batch.seconds)[:MAX_WORST]

    @classmethod
    def of(cls, lines: Iterable[bytes | str]) -> Monitored:
        """Add up the events of a file, or of those of several ranks one after the other."""
        found = cls()
        for line in lines:
            if not line.strip():
                continue
            try:
                found.add(_decode(line))
            except msgspec.MsgspecError:
                found.unread += 1
        found._sort()
        return found
