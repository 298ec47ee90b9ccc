"""The control groups of this process: what processor time and memory they grant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
_NO_LIMIT = 2**60  # version 1 writes "no limit" as a number near 2**63


def read_text(path: Path) -> str | None:
    """Return the text of a file of the kernel's; None where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = read_text(path)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def group_folders(controller: str, root: Path, proc: Path) -> Iterator[tuple[int, Path]]:
    """Version and folder of this process's control group and of all above it: the strictest limit holds.

    In a container the path that the kernel names may lie outside what is mounted, so the root always counts.
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
    """A limit on processor time.

    Attributes:
        cores: What it comes to; it need not be whole.
        folder: The control group that sets it; its `cpu.stat` counts how often it stopped the group.
    """

    cores: float
    folder: Path


def strictest_quota(root: Path = CGROUP_ROOT, proc: Path = PROC) -> Quota | None:
    """Return the lowest quota of processor time on this process; None where there is none."""
    quotas = []
    for version, folder in group_folders("cpu", root, proc):
        if version == 2:
            quota, _, period = (read_text(folder / "cpu.max") or "").partition(" ")
        else:
            quota = read_text(folder / "cpu.cfs_quota_us") or ""
            period = read_text(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0:
            quotas.append(Quota(int(quota) / int(period), folder))
    return min(quotas, key=lambda quota: quota.cores, default=None)


def quota_cores(root: Path = CGROUP_ROOT, proc: Path = PROC) -> float | None:
    """Return the processor time that the control groups grant, in cores; None where they set no limit."""
    quota = strictest_quota(root, proc)
    return None if quota is None else quota.cores


def parse_periods(cpu_stat: str) -> tuple[int, int] | None:
    """Return the quota's periods so far, and those of them in which the group was stopped, from `cpu.stat`."""
    fields = _fields(cpu_stat)
    try:
        return fields["nr_periods"], fields["nr_throttled"]
    except KeyError:
        return None


def _fields(text: str) -> dict[str, int]:
    """The numbers of a file with a name and a number on each line."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _memory_limits(root: Path, proc: Path) -> Iterator[tuple[int, bool, Path]]:
    """Limit, whether it is of version 2, and folder of each group that sets one."""
    for version, folder in group_folders("memory", root, proc):
        limit = _number(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes"))
        if limit is not None and limit < _NO_LIMIT:
            yield limit, version == 2, folder


def memory_limit_bytes(root: Path = CGROUP_ROOT, proc: Path = PROC) -> int | None:
    """Return the lowest memory limit on this process; None where there is none."""
    return min((limit for limit, _, _ in _memory_limits(root, proc)), default=None)


def bytes_below_limit(root: Path = CGROUP_ROOT, proc: Path = PROC) -> int | None:
    """Return the bytes until the nearest memory limit; page cache that can be dropped is free. None without a limit."""
    free = []
    for limit, is_new, folder in _memory_limits(root, proc):
        used = _number(folder / ("memory.current" if is_new else "memory.usage_in_bytes"))
        if used is not None:
            fields = _fields(read_text(folder / "memory.stat") or "")
            cached = fields.get("inactive_file" if is_new else "total_inactive_file", 0)
            free.append(max(0, limit - max(0, used - cached)))
    return min(free, default=None)
