"""How many cores this process may use, after its affinity and the quotas of its control groups."""

from __future__ import annotations

import os

from bottleneck.measure.cgroup import quota_cores


def allowed_cores() -> int:
    """Cores that the scheduler may put this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cores() -> float:
    """Cores after affinity and quota."""
    return min(float(allowed_cores()), quota_cores() or float("inf"))
