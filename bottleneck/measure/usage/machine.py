"""Counters of the whole machine: cores, quota, disks and network, and gauges: run queue and shared memory.

A reading is made at the edges of blocks. psutil reads the times of the CPUs; it would read disks and network too, at
two to three times the price of a file that stays open and of the few lines that count, and it knows no run queue.
What a system does not have is left out of the readings, and `missing` says so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import psutil

from bottleneck.measure.system.cgroup import CGROUP_ROOT, PROC, parse_periods, strictest_quota
from bottleneck.measure.system.cpu_times import cpu_times_of

SYS = Path("/sys")
SHM = Path("/dev/shm")
_SECTOR_BYTES = 512  # what /proc/diskstats counts in, whatever the disk's own
_LONGEST_FILE = 1 << 18
_KNOWN_TIMES = 8  # of a CPU; what follows (guests) is counted in them already
_VIRTUAL = ("zram", "loop", "ram")
"""Block devices whose bytes come from memory or from another device."""


class KernelFile:
    """A file of the kernel's that is kept open, and read from its beginning each time."""

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor: int | None = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            self._descriptor = None

    def read(self) -> str:
        """Return its text; empty where it cannot be read."""
        if self._descriptor is None:
            return ""
        try:
            return os.pread(self._descriptor, _LONGEST_FILE, 0).decode(errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """Close it; safe to call twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class MachineUsage:
    """Reads what the machine does.

    Args:
        cpus: Numbers of the CPUs that this process may use; None: all count.
        proc, sys, cgroup_root, shm: Where the kernel describes processes and devices, and where control groups and
            shared memory are mounted.
    """

    def __init__(
        self,
        cpus: Sequence[int] | None,
        *,
        proc: Path = PROC,
        sys: Path = SYS,
        cgroup_root: Path = CGROUP_ROOT,
        shm: Path = SHM,
    ) -> None:
        self._cpus = cpus
        self.cores = len(cpus) if cpus else os.cpu_count() or 1
        """CPUs that count."""
        quota = strictest_quota(cgroup_root, proc)
        self.quota_cores = quota.cores if quota is not None else None
        self._disks, self._interfaces = _physical(sys / "block"), _physical(sys / "class" / "net")
        self._shm = shm
        self._disk_stat = KernelFile(proc / "diskstats")
        self._net, self._load = KernelFile(proc / "net" / "dev"), KernelFile(proc / "loadavg")
        self._periods = KernelFile(quota.folder / "cpu.stat") if quota is not None else None
        self.missing = self._find_missing()

    def _find_missing(self) -> tuple[str, ...]:
        counters = self.counters()
        lacks = {
            "Cores kept busy, by this job and by others: /proc/stat cannot be read (Linux has it).": "busy_s",
            "Bytes read from disks, and how busy they were: no disk is listed in /proc/diskstats and /sys/block.": (
                "disk_read_bytes"
            ),
            "Bytes over the network: /proc/net/dev cannot be read (Linux has it).": "network_bytes",
        }
        missing = [line for line, key in lacks.items() if key not in counters]
        if self.runnable() is None:
            missing.append("The length of the run queue: /proc/loadavg cannot be read (Linux has it).")
        if self.quota_cores is not None and "periods" not in counters:
            missing.append("How often the quota stopped the job: cpu.stat of its control group cannot be read.")
        return tuple(missing)

    def counters(self) -> dict[str, float]:
        """Return what only ever grows, as far as the system has it.

        Returns:
            `busy_s` and `total_s`: CPU seconds of the CPUs that count; `periods` and `throttled_periods` of the
            quota; `disk_read_bytes`, `disk_write_bytes`, and for each disk `busy_s:NAME` and `queued_s:NAME`, the
            time of all its requests together; `network_bytes`, sent and received.
        """
        found = self._cpu_times()
        found |= self._disk_counters()
        found |= self._network_bytes()
        periods = parse_periods(self._periods.read()) if self._periods is not None else None
        if periods is not None:
            found["periods"], found["throttled_periods"] = periods
        return found

    def _cpu_times(self) -> dict[str, float]:
        try:
            rows = cpu_times_of(self._cpus)
        except (OSError, psutil.Error):
            return {}
        total_s = sum(sum(row[:_KNOWN_TIMES]) for row in rows)
        idle_s = sum(row.idle + getattr(row, "iowait", 0.0) for row in rows)
        return {"busy_s": total_s - idle_s, "total_s": total_s} if total_s else {}

    def _disk_counters(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for line in self._disk_stat.read().splitlines():
            fields = line.split()
            if len(fields) < 14 or fields[2] not in self._disks:
                continue
            name, numbers = fields[2], [int(field) for field in fields[3:14]]
            found["disk_read_bytes"] = found.get("disk_read_bytes", 0) + numbers[2] * _SECTOR_BYTES
            found["disk_write_bytes"] = found.get("disk_write_bytes", 0) + numbers[6] * _SECTOR_BYTES
            found[f"busy_s:{name}"], found[f"queued_s:{name}"] = numbers[9] / 1000, numbers[10] / 1000
        return found

    def _network_bytes(self) -> dict[str, float]:
        by_name: dict[str, int] = {}
        for line in self._net.read().splitlines():
            name, colon, rest = line.partition(":")
            fields = rest.split()
            if colon and len(fields) >= 9:
                by_name[name.strip()] = int(fields[0]) + int(fields[8])
        # A virtual interface would count the bytes of a real one again; in a container there are only virtual ones.
        real = [name for name in by_name if name in self._interfaces] or [name for name in by_name if name != "lo"]
        return {"network_bytes": sum(by_name[name] for name in real)} if by_name else {}

    def runnable(self) -> int | None:
        """Return the threads of the whole machine that run or could, without the one that asks."""
        fields = self._load.read().split()
        running = fields[3].partition("/")[0] if len(fields) > 3 else ""
        return max(0, int(running) - 1) if running.isdigit() else None

    def shm_bytes(self) -> tuple[int, int] | None:
        """Return the size of the shared memory and what is used of it; None where there is none."""
        try:
            usage = psutil.disk_usage(str(self._shm))
        except OSError:
            return None
        return (usage.total, usage.used) if usage.total else None

    def close(self) -> None:
        """Close the files; safe to call twice."""
        for file in (self._disk_stat, self._net, self._load, self._periods):
            if file is not None:
                file.close()


def is_rotational(disk: str, sys: Path = SYS) -> bool | None:
    """Return whether a disk says that it turns; None where that is unknown."""
    try:
        return (sys / "block" / disk / "queue" / "rotational").read_text().strip() == "1"
    except OSError:
        return None


def _physical(folder: Path) -> frozenset[str]:
    """Names of the devices with hardware behind them; a container sees none."""
    try:
        return frozenset(
            entry.name
            for entry in folder.iterdir()
            if (entry / "device").exists() and not entry.name.startswith(_VIRTUAL)
        )
    except OSError:
        return frozenset()
