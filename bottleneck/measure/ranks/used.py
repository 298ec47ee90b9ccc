"""What a rank uses while its loader is timed: CPU time of its processes, and the bytes over the network of its host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from bottleneck.measure.machine import MachineUsage, cpu_seconds


@dataclass(frozen=True)
class Used:
    """Counters, or how much they grew; None of what this system does not show."""

    cpu_s: float | None = None
    network_bytes: float | None = None

    def __add__(self, other: Used) -> Used:
        return Used(_sum(self.cpu_s, other.cpu_s), _sum(self.network_bytes, other.network_bytes))

    def since(self, before: Used) -> Used:
        """How much was used between two readings."""
        return self + Used(*(None if value is None else -value for value in (before.cpu_s, before.network_bytes)))


def read_used(workers: Sequence[int], machine: MachineUsage) -> Used:
    """Read the counters of this process and its workers, by their process ids, and of the machine."""
    times_s = [cpu_seconds(pid) for pid in (os.getpid(), *workers)]
    known = [time_s for time_s in times_s if time_s is not None]
    return Used(sum(known) if len(known) == len(times_s) else None, machine.counters().get("network_bytes"))


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
