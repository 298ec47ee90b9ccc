"""Activity of an NVIDIA device while the job runs, through the vendor's own bindings (nvidia-ml-py, an extra)."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

_MAX_WINDOW_S = 1.0
"""Window of the driver's utilisation rate (nvmlDeviceGetUtilizationRates, 'between 1 and 1/6 second'), at most."""
_REASONS = {"power": 0x04 | 0x80, "heat": 0x20 | 0x40, "hardware slowdown": 0x08, "clocks set by the user": 0x02}
"""Bits of nvmlClocksEventReasons; the bindings have renamed the constants, but the bits stay."""


class NoGpuError(Exception):
    """The device cannot be read; the message is one line on the missing part and how to get it."""


@dataclass(frozen=True)
class BusyShare:
    """Share of time in which any kernel ran."""

    time_s: float
    window_s: float
    """Seconds that it covers, back from then."""
    share: float


class Gpu:
    """Reads the device that the job computes on.

    Args:
        device: Device of the train step.
        clock: Monotonic seconds.
        wall_clock: Seconds since 1970, with which the driver stamps its samples.

    Raises:
        NoGpuError: It is not an NVIDIA device, or cannot be read.
    """

    def __init__(
        self,
        device: torch.device,
        clock: Callable[[], float] = time.perf_counter,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if device.type != "cuda" or getattr(torch.version, "hip", None):
            raise NoGpuError(f"Utilisation of {device}: only that of NVIDIA devices is read.")
        self._clock = clock
        self._wall_clock = wall_clock
        try:
            self._nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            raise NoGpuError(
                "Utilisation and clocks of the GPU: pip install 'torch-bottleneck[nvidia]' shows them."
            ) from None
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise NoGpuError(f"Utilisation of the GPU: the driver's library does not start ({error}).") from None
        self.is_part = False
        """True if the job has a part of a device (MIG)."""
        self._handle = self._find(device)
        self._seen_us = 0
        self.max_sm_clock_hz = self._sm_clock_hz(self._nvml.nvmlDeviceGetMaxClockInfo)

    def _find(self, device: torch.device) -> Any:
        """Return the driver's handle; its numbers differ from torch's, which CUDA_VISIBLE_DEVICES changes."""
        tried: list[str] = []
        # Torch leaves out the driver's prefix of a UUID: a whole device, or a part of one.
        for kind in ("GPU", "MIG"):
            try:
                properties: Any = torch.cuda.get_device_properties(device)
                found = self._nvml.nvmlDeviceGetHandleByUUID(f"{kind}-{properties.uuid}")
            except (self._nvml.NVMLError, RuntimeError, AssertionError, AttributeError, ValueError) as error:
                tried.append(str(error))
            else:
                self.is_part = kind == "MIG"
                return found
        self.close()
        raise NoGpuError(f"Utilisation of {device}: the driver does not know it ({'; '.join(tried)}).")

    def missing(self) -> str | None:
        """Return a line on the values that the driver does not report for a part of a device; None if it does."""
        if not self.is_part or self.sm_clock_hz() is not None:
            return None
        return (
            "Utilisation and clocks of the GPU: the job has a part of one (MIG), for which the driver reports neither. "
            "Whether its clocks are throttled is unknown."
        )

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the driver's answer about the device; None if it has none."""
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None

    def _sm_clock_hz(self, function: Callable[..., Any]) -> float | None:
        megahertz = self._ask(function, self._nvml.NVML_CLOCK_SM)
        return None if megahertz is None else megahertz * 1e6

    def sm_clock_hz(self) -> float | None:
        """Return the present clock of the multiprocessors; None if unknown."""
        return self._sm_clock_hz(self._nvml.nvmlDeviceGetClockInfo)

    def busy_shares(self, now_s: float) -> list[BusyShare]:
        """Return the driver's samples since the last call, or its present rate if there are none.

        Args:
            now_s: Time of the present rate, such as the end of a block that has just ended.
        """
        nvml, found = self._nvml, []
        taken = self._ask(nvml.nvmlDeviceGetSamples, nvml.NVML_GPU_UTILIZATION_SAMPLES, self._seen_us)
        to_ours_s = self._clock() - self._wall_clock()
        for sample in taken[1] if taken is not None else ():
            before_us = self._seen_us
            self._seen_us = max(self._seen_us, sample.timeStamp)
            # The window of the first one is unknown.
            if 0 < before_us < sample.timeStamp:
                window_s = (sample.timeStamp - before_us) / 1e6
                found.append(BusyShare(sample.timeStamp / 1e6 + to_ours_s, window_s, sample.sampleValue.uiVal / 100))
        if not found:
            rates = self._ask(nvml.nvmlDeviceGetUtilizationRates)
            if rates is not None:
                found.append(BusyShare(now_s, _MAX_WINDOW_S, rates.gpu / 100))
        return found

    def throttled(self) -> tuple[str, ...] | None:
        """Return the reasons for throttled clocks at present; None if the driver does not report them."""
        nvml = self._nvml
        # Called 'throttle reasons' by older drivers and bindings.
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            bits = self._ask(getattr(nvml, name)) if hasattr(nvml, name) else None
            if bits is not None:
                return tuple(reason for reason, mask in _REASONS.items() if bits & mask)
        return None

    def other_processes(self, own: Collection[int]) -> int | None:
        """Return the number of other processes with work on the device; None if unknown.

        Args:
            own: Process ids of this job. In a container the driver may list those of the machine outside; if it lists
                more than one process and none is this one, any of them may be another's.
        """
        listed = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses)
        if listed is None:
            return None
        pids = {process.pid for process in listed}
        if os.getpid() in pids:
            return len(pids.difference(own))
        return 0 if len(pids) <= 1 else None

    def close(self) -> None:
        """Release the driver's library; safe to call twice."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()
