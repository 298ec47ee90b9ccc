"""What a worker reports of a recording that cannot be served as it is; the loader itself does not fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A mode in which the job's code raised, although it does not when everything is real."""

    mode: int
    error: str
