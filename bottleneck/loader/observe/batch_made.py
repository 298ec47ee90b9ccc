"""When a worker made a batch, and what of that went into which stage."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_BATCHES = 64
"""Of one worker; the last of them are kept."""


@dataclass
class BatchMade:
    """The making of one batch, by a clock that all processes of a machine share."""

    begin_s: float
    end_s: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    """Time in each stage, all samples together, in the order in which they began [s]."""
