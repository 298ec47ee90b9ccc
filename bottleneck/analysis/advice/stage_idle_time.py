"""Waiting and computing: how much of a stage's time passed on no core."""

from __future__ import annotations

from bottleneck.results.evidence import Evidence
from bottleneck.results.records import Stage


def waiting_share(stage: Stage, evidence: Evidence) -> float | None:
    """The part of a stage's time in the workers that is waiting; None where that was not observed.

    A worker that is ready and gets no core does not wait for a disk, the network or a lock. It happens while it
    computes, so that this time is shared out by CPU time.
    """
    if stage.wall_s_per_batch is None or stage.cpu_s_per_batch is None:
        return None
    return share_of(stage.wall_s_per_batch, stage.cpu_s_per_batch, evidence)


def share_of(wall_s: float, cpu_s: float, evidence: Evidence) -> float | None:
    """The part of some wall-clock time that is waiting, given the CPU time in it."""
    if wall_s <= 0:
        return None
    busy_s = cpu_s * (1 + max(0.0, evidence.core_wait_per_cpu_s or 0.0))
    return min(1.0, max(0.0, 1 - busy_s / wall_s))
