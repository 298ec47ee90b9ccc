"""The machine as seen by the job: memory and its limits, everything that numbers depend on, and other load.

Nothing here identifies a machine or a person: the description ends up in reports that are published.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from bottleneck._pydata import installed_version
from bottleneck.job.loader_args import default_start_method
from bottleneck.job.world import ranks_of_host
from bottleneck.measure.machine.counters import allowed_cpu_times
from bottleneck.measure.machine.limits import CGROUP_ROOT, PROC, memory_limits, read_text, shm_usage, usable_cores
from bottleneck.results.records import Warning
from bottleneck.results.warnings.machine import other_load


def free_memory_bytes(cgroup_root: Path = CGROUP_ROOT, proc: Path = PROC) -> int:
    """Return the memory that this process can still take, within the limit of its container."""
    left = [max(0, limit - used) for limit, used in memory_limits(cgroup_root, proc)]
    return min([int(psutil.virtual_memory().available), *left])


def rank_memory_bytes() -> int:
    """Return the memory that this rank can still take while the other ranks of its host take as much."""
    return free_memory_bytes() // ranks_of_host()


def memory_bytes() -> int:
    """Return the memory limit of this process: that of the machine, or of its container."""
    return min([int(psutil.virtual_memory().total), *(limit for limit, _ in memory_limits())])


def open_files_limit() -> int | None:
    """Return the limit of open descriptors of this process; None if there is none."""
    try:
        import resource
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else int(limit)


def read_cpuinfo(*names: str, proc: Path = PROC) -> str | None:
    """Return a field of the system's first processor, under any of some names; None if missing."""
    for line in (read_text(proc / "cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in names and value.strip():
            return value.strip()
    return None


def _cpu_model() -> str | None:
    return read_cpuinfo("model name", "cpu model", "hardware") or platform.processor() or None


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


def describe_environment(device: torch.device | str) -> dict[str, Any]:
    """Describe the environment that the numbers of a diagnosis depend on, ready for JSON.

    Returns:
        Names, versions and limits; None for unknown ones. No host or user name, no paths.
    """
    device, shm = torch.device(device), shm_usage()
    return {
        "device": str(device),
        "device_name": _device_name(device),
        "torch": str(torch.__version__),
        "torchvision": installed_version("torchvision"),
        "numpy": installed_version("numpy"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}".strip(),
        "cpu_model": _cpu_model(),
        "cpu_cores": os.cpu_count(),
        "cpu_cores_available": usable_cores(),
        "memory_bytes": memory_bytes(),
        "memory_available_bytes": free_memory_bytes(),
        "shm_bytes": shm.total if shm is not None else None,
        "shm_free_bytes": shm.free if shm is not None else None,
        "open_files_limit": open_files_limit(),
        "torch_threads": torch.get_num_threads(),
        "start_method": default_start_method(),
    }


# --- switches that slow a training down ---------------------------------------------------------------------

_TOOLS = range(6)
"""Tool ids of `sys.monitoring`."""


def switches_left_on(device: torch.device | str) -> tuple[str, ...]:
    """Return the switches of this thread that slow down training on a device, as the code that sets them."""
    on_cuda = torch.device(device).type == "cuda"
    switches = {
        "torch.autograd.set_detect_anomaly(True)": torch.is_anomaly_enabled(),
        "torch.autograd.profiler": torch._C._autograd._profiler_enabled(),
        "sys.setprofile": sys.getprofile() is not None,
        "sys.settrace": sys.gettrace() is not None,
        **{f"sys.monitoring ({tool})": True for tool in _monitoring()},
        "torch.use_deterministic_algorithms(True)": torch.are_deterministic_algorithms_enabled(),
        "torch.backends.cudnn.deterministic = True": on_cuda and torch.backends.cudnn.deterministic,
        "torch.backends.cudnn.enabled = False": on_cuda and not torch.backends.cudnn.enabled,
        "torch.backends.mkldnn.enabled = False": not on_cuda and not getattr(torch.backends.mkldnn, "enabled", True),
    }
    return tuple(name for name, is_on in switches.items() if is_on)


def _monitoring() -> Iterator[str]:
    """Yield the tools that watch Python's calls or lines, from Python 3.12 on."""
    monitoring: Any = getattr(sys, "monitoring", None)
    for tool in _TOOLS if monitoring is not None else ():
        if (name := monitoring.get_tool(tool)) is not None and monitoring.get_events(tool):
            yield name


# --- the load of others -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProcessTimes:
    """CPU seconds of this process and its descendants at one moment.

    Attributes:
        own: CPU seconds of this process.
        reaped: CPU seconds of descendants that have ended and been waited for, if the system adds them up.
        living: CPU seconds of each living descendant, with its own reaped ones, by process id and creation time.
    """

    own: float
    reaped: float
    living: dict[tuple[int, float], float]

    def since(self, start: ProcessTimes) -> float:
        """Return the CPU seconds used since an earlier moment, including processes that began or ended in between."""
        ended = sum(seconds for key, seconds in start.living.items() if key not in self.living)
        # A child that has ended is counted from its birth: its use before the start is subtracted.
        reaped = max(0.0, self.reaped - start.reaped - ended)
        living = sum(max(0.0, seconds - start.living.get(key, 0.0)) for key, seconds in self.living.items())
        return max(0.0, self.own - start.own) + reaped + living


def read_process_times(pids: Sequence[int] = ()) -> ProcessTimes:
    """Return the times used by this process, or some others, and their descendants so far."""
    processes = [psutil.Process(pid) for pid in pids or (os.getpid(),)]
    # Children first: one that ends in between is among the reaped then, and counts twice rather than never.
    living = {}
    for child in (child for process in processes for child in process.children(recursive=True)):
        try:
            times = child.cpu_times()
            key = (child.pid, child.create_time())
        except psutil.Error:
            continue
        living[key] = times.user + times.system + times.children_user + times.children_system
    own = [process.cpu_times() for process in processes]
    reaped = sum(each.children_user + each.children_system for each in own)
    return ProcessTimes(sum(each.user + each.system for each in own), reaped, living)


def _read_busy_seconds() -> float:
    """Return the CPU seconds spent by all processes on the CPUs that this one may use.

    Time stolen by other virtual machines counts: it is load by others. Interrupts do not: many belong to this job's
    own reading.
    """
    cpus = allowed_cpu_times()
    return float(sum(cpu.user + cpu.system + getattr(cpu, "nice", 0.0) + getattr(cpu, "steal", 0.0) for cpu in cpus))


_MANY_CORES = 0.5
"""Cores in use by others above which blocks of that time say little."""


_MAX_OTHER_CORES = 0.2
"""Cores that other processes may use before the numbers are in doubt."""
_DISTURBED_SHARE = 0.1
"""Share of the time in which they may use many before uncertain results are in doubt."""


class OtherLoad:
    """Cores in use by other processes, between `start` and `stop`.

    In contrast to `cores_other` of the utilisation, it counts all descendants of this process as its own, workers or
    not, and includes the time between blocks.
    """

    def __init__(
        self,
        read_busy_seconds: Callable[[], float] = _read_busy_seconds,
        read_process_times: Callable[[], ProcessTimes] = read_process_times,
        read_clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_busy_seconds = read_busy_seconds
        self._read_process_times = read_process_times
        self._read_clock_s = read_clock_s
        self._start: tuple[float, float, ProcessTimes] | None = None
        self._lap: tuple[float, float, ProcessTimes] | None = None
        self.worst_s = self.worst_cores = 0.0
        """Seconds of all laps in which others used many cores, and their cores then."""

    def start(self) -> None:
        """Begin, or begin again."""
        self._start = self._lap = self._read()
        self.worst_s = self.worst_cores = 0.0

    def _read(self) -> tuple[float, float, ProcessTimes]:
        return self._read_clock_s(), self._read_busy_seconds(), self._read_process_times()

    def lap(self) -> None:
        """End a lap that began with the start, or with the end of the last one."""
        if self._lap is None:
            return
        began_s, busy_s, times = self._lap
        self._lap = self._read()
        now_s, busy_now_s, times_now = self._lap
        others_s = busy_now_s - busy_s - times_now.since(times)
        seconds = now_s - began_s
        if seconds > 0 and others_s >= _MANY_CORES * seconds:
            self.worst_cores = (self.worst_cores * self.worst_s + others_s) / (self.worst_s + seconds)
            self.worst_s += seconds

    def stop(self) -> float:
        """End, and return the cores that others used on average; 0 if it was never started or no time has passed.

        Kernels count CPU time in ticks of 10 ms or so, so a second is the shortest useful time.
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

    def warning(self, cores: float, seconds: float, of_ranks_cores: float, *, is_settled: bool) -> Warning | None:
        """Return a warning if other processes put the numbers in doubt; else None.

        Args:
            cores: Cores in use by others on average.
            seconds: Time for measuring.
            of_ranks_cores: Cores used by other ranks of this host in the worst laps, which is not load of others.
            is_settled: True if the answer is certain: many busy cores for a moment have not changed it.
        """
        worst = self.worst_cores - of_ranks_cores
        in_laps = self.worst_s >= _DISTURBED_SHARE * seconds and worst > _MAX_OTHER_CORES
        if cores > _MAX_OTHER_CORES:
            return other_load(cores)
        return other_load(worst, self.worst_s) if in_laps and not is_settled else None
