"""Waiting told apart from computing: how much of a stage's time passed on no core."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bottleneck.results.records import Stage

CORE_WAIT = "core_wait_per_cpu_s"
"""Key of the evidence: seconds that the workers stood ready without a core, for each second of CPU time."""


def waiting_share(stage: Stage, evidence: Mapping[str, Any]) -> float | None:
    """Return the part of a stage's time in the workers that is waiting; None where it was not observed.

    A worker that is ready and gets no core does not wait for a disk, the network or a lock. It happens while it
    computes, so that this time is shared out by CPU time.
    """
    if stage.wall_s_per_batch is None or stage.cpu_s_per_batch is None:
        return None
    return share_of(stage.wall_s_per_batch, stage.cpu_s_per_batch, evidence)


def share_of(wall_s: float, cpu_s: float, evidence: Mapping[str, Any]) -> float | None:
    """Return the part of some wall-clock time that is waiting, given the CPU time in it."""
    if wall_s <= 0:
        return None
    busy_s = cpu_s * (1 + _core_wait(evidence))
    return min(1.0, max(0.0, 1 - busy_s / wall_s))


def _core_wait(evidence: Mapping[str, Any]) -> float:
    value = evidence.get(CORE_WAIT)
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return max(0.0, float(value)) if known and value is not None else 0.0
