"""The records of a tuning, as written to JSON version 1: what was tried, what was kept, and what it gained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bottleneck.results.records import Block, Interval, Rate, Result, Tool, Warning
from bottleneck.results.values import Amount, Count

ChangeOn = Literal["loader", "payload", "step"]
Alters = Literal["numbers", "order", "memory", "nothing"]
"""What a change may alter besides the speed; `numbers` is what is learned."""
Outcome = Literal["kept", "dropped", "undecided", "failed", "not_applicable", "not_tried"]
NO_TIME = "there was no time left for it"
"""The reason of what a longer budget would have tried."""
AS_IT_IS = "as it is"
"""The job before any change."""


@dataclass(frozen=True)
class Pair:
    """A block of the job so far and one with a change, one right after the other."""

    base: Block
    changed: Block


@dataclass(frozen=True)
class Trial:
    """A change that was tried, or why it was not."""

    setting: str
    """The change and its value, such as `num_workers=4`; several that were tried together with plus signs between."""
    on_top_of: tuple[str, ...]
    """What the job had already."""
    on: ChangeOn
    alters: Alters
    outcome: Outcome
    reason: str | None
    """Why it failed, does not apply, was not tried, or was not confirmed; None otherwise."""
    gain: Interval | None
    """The factor of throughput; None without two pairs."""
    predicted: Interval | None
    """What the diagnosis of the job had promised for such a change; None where it had no such advice."""
    pairs: tuple[Pair, ...]
    setup_s: Amount | None
    """What the first step took beyond a later one, such as compiling; None where it did not run."""
    changes: tuple[str, ...] = ()
    """The names of what was tried; none in results of before there was this field."""


@dataclass(frozen=True)
class Rung:
    """The job with all changes up to this one, measured in turns with the other rungs."""

    settings: tuple[str, ...]
    """What this rung adds; none for the job as it is."""
    alters: tuple[Alters, ...]
    """By setting."""
    rate: Rate
    gain: Interval | None
    """The factor of throughput over the rung before."""
    total: Interval | None
    """That over the job as it is."""
    predicted: Interval | None
    peak_device_bytes: Count | None
    """The most memory of the device that its blocks needed; None on a CPU."""
    setup_s: Amount | None

    @property
    def label(self) -> str:
        """For people."""
        return " + ".join(self.settings) or AS_IT_IS


@dataclass(frozen=True)
class TuningResult:
    """A complete tuning, as written to JSON version 1."""

    schema_version: int
    kind: Literal["tuning"]
    tool: Tool
    created: str
    """When, as an ISO 8601 time in UTC."""
    environment: Mapping[str, Any]
    pipeline: Mapping[str, Any]
    """The job as it was given."""
    sentence: str
    gain: Interval | None
    """The factor of throughput of all that was kept; None where nothing was."""
    ladder: tuple[Rung, ...]
    """The job as it is, then each change that was kept; empty where the measuring ended before that."""
    trials: tuple[Trial, ...]
    """In the order in which they were made."""
    lines: tuple[str, ...]
    """The changed lines of the job."""
    before: Result | None
    """The diagnosis of the job as it was given."""
    after: Result | None
    """That of the tuned job."""
    warnings: tuple[Warning, ...]
    seconds: Amount
    """What the tuning itself took."""
