"""How busy the NVIDIA devices of some processes are, by the vendor's own bindings (nvidia-ml-py, an extra)."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any


class Devices:
    """Reads the devices of a machine again and again while a job is watched; of nothing where there are none."""

    def __init__(self) -> None:
        self._shares: dict[int, list[float]] = {}
        self._pids: dict[int, set[int]] = {}
        try:
            self._nvml: Any = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        except Exception:  # noqa: BLE001 - no bindings, no driver, no device: nothing is known, then
            self._nvml, self._handles = None, []

    def look(self) -> None:
        """Note what each device does at this moment, and for whom."""
        for number, handle in enumerate(self._handles):
            try:
                share = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            except self._nvml.NVMLError:
                continue
            self._shares.setdefault(number, []).append(share)
            self._pids.setdefault(number, set()).update(process.pid for process in running)

    def busy_share(self, pid: int, job: Collection[int]) -> float | None:
        """Return the share of the time in which the devices of a process were busy; None where that is not known.

        Args:
            pid: The process.
            job: All processes of its job on a device. In a container the driver may know them by other numbers: where
                only one process of the job computes and only one device is at work, they belong together.
        """
        mine = [number for number, pids in self._pids.items() if pid in pids]
        if not mine and len(job) == 1:
            at_work = [number for number, pids in self._pids.items() if pids]
            mine = at_work if len(at_work) == 1 and len(self._pids[at_work[0]]) == 1 else []
        shares = [sum(self._shares[number]) / len(self._shares[number]) for number in mine]
        return max(shares, default=None)

    def close(self) -> None:
        """Let the driver's library go."""
        if self._handles:
            self._nvml.nvmlShutdown()
            self._handles = []
