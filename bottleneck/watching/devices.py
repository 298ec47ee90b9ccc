"""Utilization of the NVIDIA devices of some processes, from the vendor's bindings (nvidia-ml-py, an extra)."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any


class Devices:
    """Samples of the devices of a machine while a job is watched; empty if there are none."""

    def __init__(self) -> None:
        self._shares: dict[int, list[float]] = {}
        self._pids: dict[int, set[int]] = {}
        try:
            self._nvml: Any = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        except Exception:  # noqa: BLE001 - without bindings, driver or device nothing is known
            self._nvml, self._handles = None, []

    def look(self) -> None:
        """Note the present utilization of each device, and its processes."""
        for number, handle in enumerate(self._handles):
            try:
                share = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            except self._nvml.NVMLError:
                continue
            self._shares.setdefault(number, []).append(share)
            self._pids.setdefault(number, set()).update(process.pid for process in running)

    def busy_share(self, pid: int, job: Collection[int]) -> float | None:
        """Return the share of time in which the busiest device of a process was busy; None if unknown.

        Args:
            pid: The process.
            job: All processes of its job on a device. In a container the driver may report other numbers for them: if
                only one process of the job computes and only one device is at work, they belong together.
        """
        mine = [number for number, pids in self._pids.items() if pid in pids]
        if not mine and len(job) == 1:
            at_work = [number for number, pids in self._pids.items() if pids]
            mine = at_work if len(at_work) == 1 and len(self._pids[at_work[0]]) == 1 else []
        shares = [sum(self._shares[number]) / len(self._shares[number]) for number in mine]
        return max(shares, default=None)

    def close(self) -> None:
        """Release the driver's library."""
        if self._handles:
            self._nvml.nvmlShutdown()
            self._handles = []
