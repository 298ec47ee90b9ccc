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
    """The share of the loop's time in which it waits for batches, or makes them itself."""


@dataclass(frozen=True)
class WatchedLine:
    """A line of the user's code, or of a library if none of the user's is active."""

    process: WhichProcess
    file: str
    line: Count
    function: str
    share: Amount
    """The share of the loop's time in the main process, of the busy time in workers."""
    called_by: str | None = left_out()
    """The user's function that calls it most, if that is another one."""
    thread: str | None = left_out()
    """The thread of the main process that works ahead of the loop; None of the loop's own."""


@dataclass(frozen=True)
class WatchedWorkers:
    """The processes, or threads of the main process, that make batches for the loop."""

    count: Count
    busy_share: Interval
    """The share of their time in which they work."""
    cpu_share: Amount | None = None
    """The share of their busy time in which they computed, and did not wait for a disk or a lock; None if unknown."""
    queued_share: Amount | None = None
    """The share of their time in which they were ready to run, and had no core."""


@dataclass(frozen=True)
class WatchedRank:
    """One process that trains."""

    pid: Count
    rank: Count | None
    samples: Count
    input_share: Interval
    waits_share: Interval
    """The share of the loop's time in which it waits for a batch that others make."""
    makes_share: Interval
    """The share in which it makes a batch, or a part of one, itself."""
    copies_share: Interval
    """The share in which it copies to the device, or waits there for earlier work of the device. No part of the
    input share on an accelerator, since stacks do not tell the two apart."""
    rest_share: Interval
    """The share in which it trains, logs, saves."""
    device_busy: Amount | None = None
    """The share of the time in which the device ran any kernel."""


@dataclass(frozen=True)
class WatchedEdit:
    """An edit that lets a loop without a DataLoader be measured."""

    file: str
    line: Count
    before: str
    after: str
    above: str
    """A line to insert before the loop; empty: none."""


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
    """The speedup that free input would bring at most; None if the job does not wait for it."""
    ranks: tuple[WatchedRank, ...]
    """The one that waits for its input the most first."""
    workers: WatchedWorkers | None
    lines: tuple[WatchedLine, ...]
    edit: WatchedEdit | None
    """The edit that the script needs before it can be measured; None: it needs none."""
    next: tuple[tuple[str, ...], ...]
    """The command that would prove it."""
