"""How many cores a process may use, after its affinity and the quotas of its control groups; without torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from bottleneck.measure.system.cgroup import CGROUP_ROOT, PROC, quota_cores


def allowed_cpus(pid: int = 0) -> list[int] | None:
    """Numbers of the CPUs that the scheduler may put a process on, 0 for this one; None where that is unknown."""
    getaffinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    try:
        return sorted(getaffinity(pid)) if getaffinity is not None else None
    except OSError:
        return None


def allowed_cores() -> int:
    """How many CPUs this process may use; all of the machine's where that is unknown."""
    return len(allowed_cpus() or ()) or os.cpu_count() or 1


def usable_cores(cgroup_root: Path = CGROUP_ROOT, proc: Path = PROC) -> float:
    """Cores that this process may use, within the quota of its container too: over 0, and not always whole."""
    quota = quota_cores(cgroup_root, proc)
    return float(allowed_cores()) if quota is None else min(float(allowed_cores()), quota)
