"""How long the job waits for its batches."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.values import Count, Quantity


@dataclass(frozen=True, kw_only=True)
class EpochGap:
    """How long the job waits for the first batch of an epoch."""

    seconds: Quantity | None = None
    """From the last batch of an epoch to the first of the next."""
    low_s: Quantity | None = None
    high_s: Quantity | None = None
    order_s: Quantity | None = None
    """The least of it that choosing the order of the samples takes."""
    persistent_workers: bool | None = None
    started_anew: bool | None = None
    """Whether the workers are; None without workers."""
    batches: Quantity | None = None
    """Batches of an epoch; a partial one counts as its part."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How long the main process waits for a batch, in seconds."""

    p50: Quantity | None = None
    p95: Quantity | None = None
    p99: Quantity | None = None
    max: Quantity | None = None
    count: Count | None = None
    mean: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Waits for a batch that are far over the usual one."""

    count: Count | None = None
    threshold_s: Quantity | None = None
    """A wait over this is a stall."""
    lost_share: Quantity | None = None
    """Share of the main process's time that they take."""
    period_batches: Count | None = None
    """Their distance, where it is regular."""
    period_s: Quantity | None = None
