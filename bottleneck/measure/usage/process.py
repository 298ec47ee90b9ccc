"""What single processes use: CPU time, threads and memory; None of a process that is gone or closed to this one."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import psutil

_LEAST_READINGS, _LEAST_SPAN_S = 4, 6.0
"""Of the memory, for a growth to be told from its noise."""
_WARM_UP_SHARE = 1 / 3


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds of all threads of a process so far."""
    if sys.platform == "linux":
        # The clock of another process, as clock_getcpuclockid(3) makes it: exact to the nanosecond, and one system
        # call instead of a file in ticks of 10 ms.
        try:
            return time.clock_gettime((~pid << 3) | 2)
        except OSError:
            pass
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


@dataclass(frozen=True)
class MemoryReading:
    """Memory of some processes together at one moment.

    Attributes:
        time_s: When.
        private_bytes: What would be free if they ended.
        shared_bytes: Their parts of what they share with others, where each sharer counts as much as every other;
            None where that is unknown.
    """

    time_s: float
    private_bytes: int
    shared_bytes: int | None


def read_memory(pids: Sequence[int], time_s: float) -> MemoryReading | None:
    """Read the memory of processes together; None if that of any cannot be read.

    The kernel walks the page tables for it, which holds up a process that maps new memory meanwhile.
    """
    try:
        found = [psutil.Process(pid).memory_full_info() for pid in pids]
    except (psutil.Error, OSError):
        return None
    shared = [max(0, each.pss - each.uss) for each in found if hasattr(each, "pss")]
    return MemoryReading(time_s, sum(each.uss for each in found), sum(shared) if len(shared) == len(found) else None)


@dataclass(frozen=True)
class Growth:
    """How fast memory grows.

    Attributes:
        bytes_per_s: The slope of a straight line through the readings, by least squares.
        error_bytes_per_s: Its standard error.
    """

    bytes_per_s: float
    error_bytes_per_s: float


def memory_growth(readings: Sequence[MemoryReading]) -> Growth | None:
    """Return how fast private memory grows; None where there are too few readings or too short a time.

    The first third is left out: each experiment makes a process larger when it is first run.
    """
    later = readings[math.ceil(len(readings) * _WARM_UP_SHARE) :]
    if len(later) < _LEAST_READINGS or later[-1].time_s - later[0].time_s < _LEAST_SPAN_S:
        return None
    # Around their means, so that no digit is lost. The same numbers as scipy.stats.linregress, whose import takes a
    # second.
    times = np.array([r.time_s for r in later]) - later[0].time_s
    sizes = np.array([r.private_bytes for r in later], dtype=np.float64) - later[0].private_bytes
    (slope, _), covariance = np.polyfit(times, sizes, 1, cov=True)
    return Growth(float(slope), float(np.sqrt(covariance[0, 0])))
