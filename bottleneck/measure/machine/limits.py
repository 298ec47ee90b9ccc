"""Limits of the machine for this process: cores, memory and shared memory. By the standard library alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
_NO_LIMIT = 2**60  # version 1 of control groups writes "no limit" as a number near 2**63


# --- control groups -----------------------------------------------------------------------------------------


def read_text(path: Path) -> str | None:
    """Return the text of one of the kernel's files; None if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _fields(text: str | None) -> dict[str, int]:
    """Return the numbers of a file with a name and a number on each line."""
    pairs = (line.split() for line in (text or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _group_folders(controller: str, root: Path, proc: Path) -> Iterator[tuple[int, Path]]:
    """Yield version and folder of this process's control group and of all above it: the strictest limit applies.

    In a container, the path named by the kernel may be outside of the mounted ones, so the root always counts.
    """
    for line in (read_text(proc / "self" / "cgroup") or "").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            version, base = 2, root
        elif controller in controllers.split(","):
            version, base = 1, root / controller
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield version, base.joinpath(*parts[:depth])


@dataclass(frozen=True)
class Quota:
    """A limit on processor time."""

    cores: float
    """Number of cores; not always whole."""
    folder: Path
    """The control group that sets it."""

    def periods(self) -> tuple[int, int] | None:
        """Return its periods so far, and those in which the group was stopped; None if they are not counted."""
        fields = _fields(read_text(self.folder / "cpu.stat"))
        known = fields.keys() >= {"nr_periods", "nr_throttled"}
        return (fields["nr_periods"], fields["nr_throttled"]) if known else None


def strictest_quota(root: Path = CGROUP_ROOT, proc: Path = PROC) -> Quota | None:
    """Return the lowest quota of processor time on this process; None if there is none."""
    quotas = []
    for version, folder in _group_folders("cpu", root, proc):
        if version == 2:
            quota, _, period = (read_text(folder / "cpu.max") or "").partition(" ")
        else:
            quota = read_text(folder / "cpu.cfs_quota_us") or ""
            period = read_text(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0:
            quotas.append(Quota(int(quota) / int(period), folder))
    return min(quotas, key=lambda quota: quota.cores, default=None)


def memory_limits(root: Path = CGROUP_ROOT, proc: Path = PROC) -> Iterator[tuple[int, int]]:
    """Yield limit and use of each control group that limits memory; page cache that can be dropped counts as free."""
    for version, folder in _group_folders("memory", root, proc):
        new = version == 2
        limit = read_text(folder / ("memory.max" if new else "memory.limit_in_bytes")) or ""
        if limit.isdigit() and int(limit) < _NO_LIMIT:
            used = read_text(folder / ("memory.current" if new else "memory.usage_in_bytes")) or ""
            cached = _fields(read_text(folder / "memory.stat")).get(f"{'' if new else 'total_'}inactive_file", 0)
            yield int(limit), max(0, int(used) - cached) if used.isdigit() else 0


def shm_usage() -> Any | None:
    """Return `total`, `used` and `free` bytes of the shared memory; None if there is none."""
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        return None
    return usage if usage.total else None


# --- cores --------------------------------------------------------------------------------------------------


def allowed_cpus(pid: int = 0) -> list[int] | None:
    """Return the numbers of the CPUs that the scheduler may use for a process, 0 for this one; None if unknown."""
    getaffinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    try:
        return sorted(getaffinity(pid)) if getaffinity is not None else None
    except OSError:
        return None


def allowed_cores() -> int:
    """Return the number of CPUs that this process may use; all of the machine's if unknown."""
    return len(allowed_cpus() or ()) or os.cpu_count() or 1


def usable_cores(cgroup_root: Path = CGROUP_ROOT, proc: Path = PROC) -> float:
    """Return the cores that this process may use, within the quota of its container: over 0, and not always whole."""
    quota = strictest_quota(cgroup_root, proc)
    return float(allowed_cores()) if quota is None else min(float(allowed_cores()), quota.cores)
