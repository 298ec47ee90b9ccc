"""A trace of a few steps, as the profiler wrote it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TraceFile:
    """A Chrome trace, which Perfetto opens.

    Attributes:
        experiment: What ran: `device` or `raw`.
        content: The file, JSON compressed by gzip.
    """

    experiment: str
    content: bytes
