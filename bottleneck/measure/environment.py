"""The machine as the job sees it: cores, memory and limits, and the load of others.

Nothing here identifies a machine or a person: the description ends up in reports that get posted.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import torch

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_SHM = "/dev/shm"
_NO_LIMIT = 2**60  # version 1 writes "no limit" as a number near 2**63


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def _cgroup_folders(controller: str, root: Path, proc: Path) -> Iterator[tuple[int, Path]]:
    """Version and folder of this process's control group and of all above it: the strictest limit holds.

    In a container the path that the kernel names may lie outside what is mounted, so the root always counts.
    """
    for line in (_read(proc / "self" / "cgroup") or "").splitlines():
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


def _quota_cores(root: Path, proc: Path) -> float | None:
    """Cores that the control groups grant; None where they set no limit."""
    limits = []
    for version, folder in _cgroup_folders("cpu", root, proc):
        if version == 2:
            quota, _, period = (_read(folder / "cpu.max") or "").partition(" ")
        else:
            quota = _read(folder / "cpu.cfs_quota_us") or ""
            period = _read(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def _usable_cpus() -> list[int] | None:
    """Numbers of the CPUs that this process may run on; None where the system does not tell."""
    getaffinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return sorted(getaffinity(0)) if getaffinity is not None else None


def cpu_cores_available(cgroup_root: Path = _CGROUP_ROOT, proc: Path = _PROC) -> float:
    """Cores that this process may use: its affinity, and the quota of its container.

    Args:
        cgroup_root: Where control groups are mounted.
        proc: Where the kernel describes processes.

    Returns:
        A number over 0 that need not be whole: a container can be granted one and a half cores.
    """
    cores = float(len(_usable_cpus() or ()) or os.cpu_count() or 1)
    quota = _quota_cores(cgroup_root, proc)
    return cores if quota is None or quota <= 0 else min(cores, quota)


def _cgroup_memory_free(root: Path, proc: Path) -> int | None:
    """Bytes until the nearest memory limit; page cache that can be dropped is free. None without a limit."""
    free = []
    for version, folder in _cgroup_folders("memory", root, proc):
        new = version == 2
        limit = _number(folder / ("memory.max" if new else "memory.limit_in_bytes"))
        used = _number(folder / ("memory.current" if new else "memory.usage_in_bytes"))
        if limit is None or used is None or limit >= _NO_LIMIT:
            continue
        key = "inactive_file" if new else "total_inactive_file"
        cached = 0
        for line in (_read(folder / "memory.stat") or "").splitlines():
            name, _, value = line.partition(" ")
            if name == key and value.isdigit():
                cached = int(value)
        free.append(max(0, limit - max(0, used - cached)))
    return min(free, default=None)


def free_memory_bytes(cgroup_root: Path = _CGROUP_ROOT, proc: Path = _PROC) -> int:
    """Memory that this process could still take, within the limit of its container.

    Args:
        cgroup_root: Where control groups are mounted, version 1 or 2.
        proc: Where the kernel describes processes.

    Returns:
        Bytes.
    """
    available = int(psutil.virtual_memory().available)
    limited = _cgroup_memory_free(cgroup_root, proc)
    return available if limited is None else min(available, limited)


def _memory_bytes(root: Path = _CGROUP_ROOT, proc: Path = _PROC) -> int:
    limits = [int(psutil.virtual_memory().total)]
    for version, folder in _cgroup_folders("memory", root, proc):
        limit = _number(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes"))
        if limit is not None and limit < _NO_LIMIT:
            limits.append(limit)
    return min(limits)


def _shm_bytes() -> int | None:
    try:
        return int(psutil.disk_usage(_SHM).total)
    except OSError:
        return None


def shm_free_bytes() -> int | None:
    """Shared memory that batches could still take, in bytes; None where there is no /dev/shm."""
    try:
        return int(psutil.disk_usage(_SHM).free)
    except OSError:
        return None


def _open_files_limit() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else int(limit)


def _cpu_model(proc: Path = _PROC) -> str | None:
    """The processor's name, where the system tells it."""
    for line in (_read(proc / "cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("model name", "cpu model", "hardware") and value.strip():
            return value.strip()
    return platform.processor() or None


def _device_name(device: torch.device) -> str | None:
    if device.type == "cpu":
        return _cpu_model()
    get_name = getattr(getattr(torch, device.type, None), "get_device_name", None)
    if get_name is None:
        return None
    try:
        return str(get_name(device))
    except (RuntimeError, AssertionError, ValueError):  # a build without the device, or a driver that is gone
        return None


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _start_method() -> str:
    # Asking for the default without allow_none would fix it for the user's own code.
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]


def describe_environment(device: torch.device | str) -> dict[str, Any]:
    """Describe what the numbers of a diagnosis depend on, ready for JSON.

    Args:
        device: The device of the train step.

    Returns:
        Names, versions and limits; None for what this system does not tell. No host or user name, no paths.
    """
    device = torch.device(device)
    return {
        "device": str(device),
        "device_name": _device_name(device),
        "torch": str(torch.__version__),
        "torchvision": _version("torchvision"),
        "numpy": _version("numpy"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}".strip(),
        "cpu_model": _cpu_model(),
        "cpu_cores": os.cpu_count(),
        "cpu_cores_available": cpu_cores_available(),
        "memory_bytes": _memory_bytes(),
        "memory_available_bytes": free_memory_bytes(),
        "shm_bytes": _shm_bytes(),
        "shm_free_bytes": shm_free_bytes(),
        "open_files_limit": _open_files_limit(),
        "torch_threads": torch.get_num_threads(),
        "start_method": _start_method(),
    }


@dataclass(frozen=True)
class ProcessTimes:
    """CPU seconds of this process and its descendants at one moment.

    Attributes:
        own: Of this process.
        reaped: Of descendants that have ended and been waited for, as far as the system adds them up.
        living: Of each living descendant, with its own reaped ones, by process id and creation time.
    """

    own: float
    reaped: float
    living: dict[tuple[int, float], float]

    def since(self, start: ProcessTimes) -> float:
        """CPU seconds used since an earlier moment, also by processes that began or ended in between."""
        ended = sum(seconds for key, seconds in start.living.items() if key not in self.living)
        # A child that has ended is counted from its birth: what it had used at the start is taken off.
        reaped = max(0.0, self.reaped - start.reaped - ended)
        living = sum(max(0.0, seconds - start.living.get(key, 0.0)) for key, seconds in self.living.items())
        return max(0.0, self.own - start.own) + reaped + living


def _read_process_times() -> ProcessTimes:
    process = psutil.Process()
    # Children first: one that ends meanwhile is then among the reaped, counted twice rather than never.
    living = {}
    for child in process.children(recursive=True):
        try:
            times = child.cpu_times()
            key = (child.pid, child.create_time())
        except psutil.Error:
            continue
        living[key] = times.user + times.system + times.children_user + times.children_system
    own = process.cpu_times()
    return ProcessTimes(own.user + own.system, own.children_user + own.children_system, living)


def _read_busy_seconds() -> float:
    """CPU seconds spent by all processes on the CPUs that this one may use.

    Time stolen by other virtual machines counts, as it is load by others. Interrupts do not: they belong to
    nobody, and much of them to this job's own reading.
    """
    cpus = psutil.cpu_times(percpu=True)
    usable = _usable_cpus()
    if usable and usable[-1] < len(cpus):
        cpus = [cpus[number] for number in usable]
    return sum(cpu.user + cpu.system + getattr(cpu, "nice", 0.0) + getattr(cpu, "steal", 0.0) for cpu in cpus)


class OtherLoad:
    """How many cores other processes keep busy, between `start` and `stop`.

    Args:
        read_busy_seconds: CPU seconds of everybody so far.
        read_process_times: CPU seconds of this process and its descendants so far.
        read_clock_s: A steady clock.
    """

    def __init__(
        self,
        read_busy_seconds: Callable[[], float] = _read_busy_seconds,
        read_process_times: Callable[[], ProcessTimes] = _read_process_times,
        read_clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_busy_seconds = read_busy_seconds
        self._read_process_times = read_process_times
        self._read_clock_s = read_clock_s
        self._start: tuple[float, float, ProcessTimes] | None = None

    def start(self) -> None:
        """Begin, or begin again."""
        self._start = (self._read_clock_s(), self._read_busy_seconds(), self._read_process_times())

    def stop(self) -> float:
        """End.

        Returns:
            Cores that others used on average, 0 or more; 0 when it was never started or no time has passed.
            Kernels count CPU time in ticks of 10 ms or so, so a second is the least that makes sense.
        """
        if self._start is None:
            return 0.0
        clock_s, busy_s, times = self._start
        self._start = None
        elapsed_s = self._read_clock_s() - clock_s
        if elapsed_s <= 0:
            return 0.0
        others_s = self._read_busy_seconds() - busy_s - self._read_process_times().since(times)
        return max(0.0, others_s / elapsed_s)
