"""What was measured of a job of many ranks as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.evidence.fields import left_out
from bottleneck.results.values import Count, Interval, Quantity


@dataclass(frozen=True, kw_only=True)
class Sync:
    """What sharing gradients costs, as the job gets on without it."""

    cost_s_per_batch: Quantity | None = None
    gain_if_free: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """The rank that holds the others the most, and those that are as slow."""

    rank: Count
    host: str
    device: str
    stage: str | None = None
    """What it is slow in."""
    gain: Interval | None = None
    """The factor of throughput of the job without that: its loader free, or its step as quick as the others'."""
    ranks: tuple[Count, ...] = left_out(())
    """It and those that are as slow, where there are several."""


@dataclass(frozen=True, kw_only=True)
class Contention:
    """What ranks take from each other."""

    ratio: Interval | None = None
    """Time for a batch of the loaders alone: all at once over one by itself."""
    what: str | None = None
    """`cores`; `memory`, where the workers compute longer for the same batch, because running cores share its bandwidth
    and caches; `disk`; `network`, or the storage behind it; None where it is not known."""


@dataclass(frozen=True, kw_only=True)
class RanksTogether:
    """A job of many ranks."""

    world: Count | None = None
    """Number of ranks; None for a job of one process."""
    hosts: Count | None = None
    backend: str | None = None
    """Of the group in which gradients are shared."""
    sync: Sync = left_out(Sync())
    sync_reason: str | None = left_out()
    """Why what sharing gradients costs is not known."""
    straggler: Straggler | None = left_out()
    contention: Contention = left_out(Contention())
    other_ranks_cores: Quantity | None = left_out()
    """Cores that the other ranks of rank 0's host kept busy in the rounds."""
