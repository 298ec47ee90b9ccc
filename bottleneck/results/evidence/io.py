"""Where data was read from."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.evidence.fields import left_out
from bottleneck.results.values import Count, Quantity


@dataclass(frozen=True, kw_only=True)
class ReadsOfExperiment:
    """What an experiment read for each sample."""

    name: str | None = None
    asked_bytes_per_sample: Quantity | None = None
    """Bytes that processes asked for, from the page cache or from storage."""
    storage_bytes_per_sample: Quantity | None = None
    calls_per_sample: Quantity | None = None
    source: str | None = None
    """`page cache`, `disk`, `unknown` or `none`."""


@dataclass(frozen=True, kw_only=True)
class Reads:
    """Where data was read from, in all experiments that load."""

    requested_bytes_per_sample: Quantity | None = None
    """Bytes that processes asked for, from the page cache or from storage."""
    storage_bytes_per_sample: Quantity | None = None
    label: str | None = None
    """`cold`, `warm` or `none`."""
    experiments: tuple[ReadsOfExperiment, ...] = ()
    missing: tuple[str, ...] = ()
    """A line for each thing that the counters do not show."""


@dataclass(frozen=True, kw_only=True)
class Cold:
    """The experiment with files dropped from memory."""

    verified: bool | None = None
    """The files were really out of memory."""
    files: Quantity | None = None
    bytes: Quantity | None = None
    reason: str | None = None
    """Why it does not count; None where it does."""
    batches: Count | None = left_out()
    samples: Quantity | None = left_out()
    resident_share: Quantity | None = left_out()
