"""Records of a tuning, as written to JSON version 1: what was tried, what was kept, and its gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bottleneck.results.records import Block, Interval, Rate, Result, Tool, Warning
from bottleneck.results.values import Amount, Count

ChangeOn = Literal["loader", "payload", "step"]
Alters = Literal["numbers", "order", "memory", "nothing"]
"""Aspects that a change may alter besides the speed; `numbers` includes everything learned."""
Outcome = Literal["kept", "dropped", "undecided", "failed", "not_applicable", "not_tried"]
NO_TIME = "there was no time left for it"
"""Reason for changes that a longer budget would have tried."""
UNCHANGED = "unchanged"
"""Label of the job before any change."""


@dataclass(frozen=True)
class Pair:
    """A block of the job so far and one with a change, measured in succession."""

    base: Block
    changed: Block


@dataclass(frozen=True)
class Trial:
    """A change that was tried, or the reason why it was not."""

    setting: str
    """The change and its value, such as `num_workers=4`; several that were tried together are joined by plus signs."""
    on_top_of: tuple[str, ...]
    """Settings that the job already had."""
    on: ChangeOn
    alters: Alters
    outcome: Outcome
    reason: str | None
    """Reason for failing, not applying, not being tried, or not being confirmed; None otherwise."""
    gain: Interval | None
    """Factor of throughput; None with fewer than two pairs."""
    predicted: Interval | None
    """Gain that the diagnosis of the job predicted for such a change; None without such advice."""
    pairs: tuple[Pair, ...]
    setup_s: Amount | None
    """Time of the first step beyond that of a later one, such as for compiling; None if it did not run."""
    changes: tuple[str, ...] = ()
    """Names of the changes; empty in results that are older than this field."""


@dataclass(frozen=True)
class Rung:
    """The job with all changes up to this one, measured in turns with the other rungs."""

    settings: tuple[str, ...]
    """Settings that this rung adds; none for the original job."""
    alters: tuple[Alters, ...]
    """Alterations, by setting."""
    rate: Rate
    gain: Interval | None
    """Factor of throughput over the rung before."""
    total: Interval | None
    """Factor of throughput over the original job."""
    predicted: Interval | None
    peak_device_bytes: Count | None
    """Peak device memory of its blocks; None on a CPU."""
    setup_s: Amount | None

    @property
    def label(self) -> str:
        """Name for people."""
        return " + ".join(self.settings) or UNCHANGED


@dataclass(frozen=True)
class TuningResult:
    """A complete tuning, as written to JSON version 1."""

    schema_version: int
    kind: Literal["tuning"]
    tool: Tool
    created: str
    """Time in UTC, in ISO 8601 format."""
    environment: Mapping[str, Any]
    pipeline: Mapping[str, Any]
    """Description of the original job."""
    sentence: str
    gain: Interval | None
    """Factor of throughput of all kept changes; None if there are none."""
    ladder: tuple[Rung, ...]
    """The original job, then each kept change; empty if measuring ended before."""
    trials: tuple[Trial, ...]
    """Trials in chronological order."""
    lines: tuple[str, ...]
    """Changed lines of the job's code."""
    before: Result | None
    """Diagnosis of the original job."""
    after: Result | None
    """Diagnosis of the tuned job."""
    warnings: tuple[Warning, ...]
    seconds: Amount
    """Duration of the tuning itself."""
