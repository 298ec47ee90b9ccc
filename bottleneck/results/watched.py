"""The records of a job that was watched and not experimented with, as written to JSON version 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bottleneck.results.records import Interval, State, Tool
from bottleneck.results.values import Amount, Count, left_out

WhichProcess = Literal["main", "worker"]


@dataclass(frozen=True)
class WatchedVerdict:
    """The answer, and what it rests on."""

    state: State
    sentence: str
    basis: Literal["watched"]
    input_share: Interval
    """Of the loop's time: what it waits for batches, and what it makes of them itself."""


@dataclass(frozen=True)
class WatchedLine:
    """A line of the user's, or of a library where none of the user's is at work."""

    process: WhichProcess
    file: str
    line: Count
    function: str
    share: Amount
    """Of the loop's time for the main process; of the time in which they are busy for workers."""
    called_by: str | None = left_out()
    """The function of the user's from which it is called most, where that is another one."""
    thread: str | None = left_out()
    """The thread of the main process that works ahead of the loop; None of the loop's own."""


@dataclass(frozen=True)
class WatchedWorkers:
    """The processes, or threads of the main process, that make batches for the loop."""

    count: Count
    busy_share: Interval
    """Of their time."""
    cpu_share: Amount | None = None
    """Of their busy time: what they computed; the rest they waited, such as for a disk. None where that is unknown."""
    queued_share: Amount | None = None
    """Of their time: they were ready to run, and had no core."""


@dataclass(frozen=True)
class WatchedRank:
    """One process that trains."""

    pid: Count
    rank: Count | None
    samples: Count
    input_share: Interval
    waits_share: Interval
    """Of the loop's time: it waits for a batch that others make."""
    makes_share: Interval
    """Of the loop's time: it makes a batch, or a part of one, itself."""
    copies_share: Interval
    """Of the loop's time: it copies to the device, and waits there for what the device does before. No part of the
    input share where there is an accelerator, since stacks do not tell the two apart."""
    rest_share: Interval
    """Of the loop's time: it trains, logs, saves."""
    device_busy: Amount | None = None
    """The share of the time in which the device ran any kernel."""


@dataclass(frozen=True)
class WatchedEdit:
    """What lets a loop without a DataLoader be measured."""

    file: str
    line: Count
    before: str
    after: str
    above: str
    """To be put in front of the loop; empty where nothing is."""


@dataclass(frozen=True)
class WatchedResult:
    """A job that was watched, as written to JSON version 1."""

    schema_version: int
    kind: Literal["watched"]
    tool: Tool
    created: str
    """When, as an ISO 8601 time in UTC."""
    pid: Count
    command: tuple[str, ...]
    seconds: Amount
    verdict: WatchedVerdict
    at_most: Amount | None
    """The factor of throughput that free input would bring at most; None where the job does not wait for it."""
    ranks: tuple[WatchedRank, ...]
    """The one that waits for its input the most first."""
    workers: WatchedWorkers | None
    lines: tuple[WatchedLine, ...]
    edit: WatchedEdit | None
    """What the script needs before the command can measure it; None where that can do so as it is."""
    next: tuple[tuple[str, ...], ...]
    """The command that would prove it."""
