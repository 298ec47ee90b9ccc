"""Counters of the machine and of processes: cores, quota, disks, network and memory.

They are read at the edges of blocks. Values that a system does not count are left out, and `missing` lists them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from bottleneck.measure.machine.limits import CGROUP_ROOT, PROC, allowed_cpus, read_text, strictest_quota

SYS = Path("/sys")
_KNOWN_TIMES = 8  # of a CPU; the following ones (guests) are already counted in them
_VIRTUAL = ("zram", "loop", "ram")
"""Block devices whose bytes come from memory or from another device."""


def cpu_times_of(cpus: Sequence[int] | None) -> list[Any]:
    """Return the CPU times of CPUs so far [s], with psutil's names; empty if it does not list them.

    If all CPUs of the machine count (or None is given), it is one row for all of them: with a hundred cores, the rows
    take ten times as long to parse.
    """
    if not cpus or len(cpus) >= (os.cpu_count() or 1):
        return [psutil.cpu_times()]
    rows = psutil.cpu_times(percpu=True)
    return [rows[number] for number in cpus] if cpus[-1] < len(rows) else []


def allowed_cpu_times() -> list[Any]:
    """Return the same for the CPUs that this process may use; for the whole machine if these are not listed."""
    return cpu_times_of(allowed_cpus()) or [psutil.cpu_times()]


# --- counters of the machine --------------------------------------------------------------------------------


class MachineUsage:
    """Reads the activity of the whole machine.

    Args:
        cpus: Numbers of the CPUs that this process may use; None for all.
        proc, sys, cgroup_root: Folders in which the kernel describes processes, devices and control groups.
    """

    def __init__(
        self,
        cpus: Sequence[int] | None,
        *,
        proc: Path = PROC,
        sys: Path = SYS,
        cgroup_root: Path = CGROUP_ROOT,
    ) -> None:
        self._cpus = cpus
        self._sys = sys
        self.cores = len(cpus) if cpus else os.cpu_count() or 1
        """Number of CPUs that count."""
        self._quota = strictest_quota(cgroup_root, proc)
        self.quota_cores = self._quota.cores if self._quota is not None else None
        self._disks = _physical(sys / "block")
        self._interfaces = _physical(sys / "class" / "net")
        self.missing = self._find_missing()

    def _find_missing(self) -> tuple[str, ...]:
        wanted = {
            "busy_s": "Cores in use by this job and by others: this system does not count them.",
            "disk_read_bytes": "Bytes read from disks, and how busy they were: this system lists no disk.",
            "network_bytes": "Bytes over the network: this system does not count them.",
        }
        if self._quota is not None:
            wanted["periods"] = "How often the quota stopped the job: cpu.stat of its control group cannot be read."
        counters = self.counters()
        return tuple(line for key, line in wanted.items() if key not in counters)

    def counters(self) -> dict[str, float]:
        """Return the counters of the system; each only ever grows.

        Returns:
            `busy_s` and `total_s`: CPU seconds of the CPUs that count; `periods` and `throttled_periods` of the quota;
            `disk_read_bytes`, `disk_write_bytes`, and for each disk `busy_s:NAME` and `queued_s:NAME`, the time of all
            its requests together; `network_bytes`, sent and received.
        """
        found: dict[str, float] = {}
        for read in (self._read_cpus, self._read_disks, self._read_network):
            with suppress(OSError, psutil.Error, RuntimeError, ValueError):  # psutil on files of a different format
                found |= read()
        periods = self._quota.periods() if self._quota is not None else None
        if periods is not None:
            found["periods"], found["throttled_periods"] = periods
        return found

    def _read_cpus(self) -> dict[str, float]:
        rows = cpu_times_of(self._cpus)
        total_s = sum(sum(row[:_KNOWN_TIMES]) for row in rows)
        idle_s = sum(row.idle + getattr(row, "iowait", 0.0) for row in rows)
        return {"busy_s": total_s - idle_s, "total_s": total_s} if total_s else {}

    def _read_disks(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, disk in (psutil.disk_io_counters(perdisk=True, nowrap=False) or {}).items():
            if name in self._disks:
                found["disk_read_bytes"] = found.get("disk_read_bytes", 0.0) + disk.read_bytes
                found["disk_write_bytes"] = found.get("disk_write_bytes", 0.0) + disk.write_bytes
                found[f"busy_s:{name}"] = disk.busy_time / 1000
                found[f"queued_s:{name}"] = (disk.read_time + disk.write_time) / 1000
        return found

    def _read_network(self) -> dict[str, float]:
        by_name = psutil.net_io_counters(pernic=True, nowrap=False)
        # A virtual interface would count the bytes of a real one again; in a container there are only virtual ones.
        real = [name for name in by_name if name in self._interfaces] or [name for name in by_name if name != "lo"]
        sums = (by_name[name].bytes_recv + by_name[name].bytes_sent for name in real)
        return {"network_bytes": float(sum(sums))} if by_name else {}

    def is_rotational(self, disk: str) -> bool | None:
        """Return True if a disk reports that it rotates; None if unknown."""
        text = read_text(self._sys / "block" / disk / "queue" / "rotational")
        return None if text is None else text == "1"


def _physical(folder: Path) -> frozenset[str]:
    """Return the names of the devices with hardware behind them; a container sees none."""
    try:
        devices = [entry.name for entry in folder.iterdir() if (entry / "device").exists()]
    except OSError:
        return frozenset()
    return frozenset(name for name in devices if not name.startswith(_VIRTUAL))


# --- processes; None for one that is gone or inaccessible --------------------------------------------------


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds of all threads of a process so far."""
    if sys.platform == "linux":
        # The clock of another process, as clock_getcpuclockid(3) makes it: exact to the nanosecond, and one system call
        # instead of a file in ticks of 10 ms.
        with suppress(OSError):
            return time.clock_gettime((~pid << 3) | 2)
    try:
        times = psutil.Process(pid).cpu_times()
    except (psutil.Error, OSError):
        return None
    return float(times.user + times.system)


def thread_count(pid: int) -> int | None:
    """Return the threads of a process."""
    try:
        return psutil.Process(pid).num_threads()
    except (psutil.Error, OSError):
        return None


def private_bytes(pids: Sequence[int]) -> int | None:
    """Return the memory that would be free if some processes ended; None if any cannot be read.

    The kernel walks the page tables for it, which delays a process that maps new memory.
    """
    try:
        return sum(psutil.Process(pid).memory_full_info().uss for pid in pids)
    except (psutil.Error, OSError):
        return None
