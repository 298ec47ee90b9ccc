"""How many cores this process may use, after its affinity and the quotas of its control groups; without torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from bottleneck.measure.system.cgroup import CGROUP_ROOT, PROC, quota_cores


def allowed_cpus() -> list[int] | None:
    """Numbers of the CPUs that the scheduler may put this process on; None where the system does not tell."""
    getaffinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return sorted(getaffinity(0)) if getaffinity is not None else None


def allowed_cores() -> int:
    """How many these are; all of the machine's where the system does not tell."""
    return len(allowed_cpus() or ()) or os.cpu_count() or 1


def usable_cores(cgroup_root: Path = CGROUP_ROOT, proc: Path = PROC) -> float:
    """Cores that this process may use: its affinity, and the quota of its container.

    Args:
        cgroup_root: Where control groups are mounted.
        proc: Where the kernel describes processes.

    Returns:
        A number over 0 that need not be whole: a container can be granted one and a half cores.
    """
    quota = quota_cores(cgroup_root, proc)
    return float(allowed_cores()) if quota is None else min(float(allowed_cores()), quota)
