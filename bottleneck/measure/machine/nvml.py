"""What an NVIDIA device does while the job runs, through the vendor's own bindings (nvidia-ml-py, an extra)."""

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
"""What the driver's utilisation rate may look back on (nvmlDeviceGetUtilizationRates, 'between 1 and 1/6 second')."""
_REASONS = {"power": 0x04 | 0x80, "heat": 0x20 | 0x40, "hardware slowdown": 0x08, "clocks set by the user": 0x02}
"""Bits of nvmlClocksEventReasons; the bindings have renamed the constants, the bits stay."""


class NoGpuError(Exception):
    """The device cannot be read; the message is one line of what is missing and how to get it."""


@dataclass(frozen=True)
class BusyShare:
    """The share of time in which any kernel ran."""

    time_s: float
    window_s: float
    """How far back from then it looks."""
    share: float


class Gpu:
    """Reads the one device that the job computes on.

    Args:
        device: Where the train step runs.
        clock: Seconds from any beginning.
        wall_clock: Seconds as the driver stamps its samples: since 1970.

    Raises:
        NoGpuError: It is no NVIDIA device, or one that cannot be read.
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
        """The job has a part of a device (MIG)."""
        self._handle = self._find(device)
        self._seen_us = 0
        self.max_sm_clock_hz = self._sm_clock_hz(self._nvml.nvmlDeviceGetMaxClockInfo)

    def _find(self, device: torch.device) -> Any:
        """Return the driver's handle; its numbers are not torch's, which CUDA_VISIBLE_DEVICES changes."""
        tried: list[str] = []
        # Torch leaves out what the driver puts in front of a UUID: a whole device, or a part of one.
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
        """Return a line on what the driver does not tell of a part of a device; None where it tells it."""
        if not self.is_part or self.sm_clock_hz() is not None:
            return None
        return (
            "Utilisation and clocks of the GPU: the job has a part of one (MIG), of which the driver tells neither. "
            "Whether its clocks are held down is not seen."
        )

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the driver reports of the device; None where it does not."""
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None

    def _sm_clock_hz(self, function: Callable[..., Any]) -> float | None:
        megahertz = self._ask(function, self._nvml.NVML_CLOCK_SM)
        return None if megahertz is None else megahertz * 1e6

    def sm_clock_hz(self) -> float | None:
        """Return the clock of the multiprocessors at this moment; None where it is unknown."""
        return self._sm_clock_hz(self._nvml.nvmlDeviceGetClockInfo)

    def busy_shares(self, now_s: float) -> list[BusyShare]:
        """Return what the driver has sampled since the last call, or its present rate where that is nothing.

        Args:
            now_s: The time that the present rate is for, such as the end of a block that has just ended.
        """
        nvml, found = self._nvml, []
        taken = self._ask(nvml.nvmlDeviceGetSamples, nvml.NVML_GPU_UTILIZATION_SAMPLES, self._seen_us)
        to_ours_s = self._clock() - self._wall_clock()
        for sample in taken[1] if taken is not None else ():
            before_us = self._seen_us
            self._seen_us = max(self._seen_us, sample.timeStamp)
            # Of the first one it is not known how far back it looks.
            if 0 < before_us < sample.timeStamp:
                window_s = (sample.timeStamp - before_us) / 1e6
                found.append(BusyShare(sample.timeStamp / 1e6 + to_ours_s, window_s, sample.sampleValue.uiVal / 100))
        if not found:
            rates = self._ask(nvml.nvmlDeviceGetUtilizationRates)
            if rates is not None:
                found.append(BusyShare(now_s, _MAX_WINDOW_S, rates.gpu / 100))
        return found

    def throttled(self) -> tuple[str, ...] | None:
        """Return why the clocks are held down at this moment; None where the driver does not say."""
        nvml = self._nvml
        # Called 'throttle reasons' by older drivers and bindings.
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            bits = self._ask(getattr(nvml, name)) if hasattr(nvml, name) else None
            if bits is not None:
                return tuple(reason for reason, mask in _REASONS.items() if bits & mask)
        return None

    def other_processes(self, own: Collection[int]) -> int | None:
        """Return how many processes of others have work on the device; None where that is unknown.

        Args:
            own: Process ids of this job. In a container the driver may list those of the machine outside; where
                more than one process is listed and none is this one, any of them may be another's.
        """
        listed = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses)
        if listed is None:
            return None
        pids = {process.pid for process in listed}
        if os.getpid() in pids:
            return len(pids.difference(own))
        return 0 if len(pids) <= 1 else None

    def close(self) -> None:
        """Let the driver's library go; safe to call twice."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()
