"""What an NVIDIA device does while the job runs, through the vendor's own bindings (nvidia-ml-py, an extra)."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

_LONGEST_WINDOW_S = 1.0
"""What the driver's utilisation rate may look back on (nvmlDeviceGetUtilizationRates, 'between 1 and 1/6 second')."""
_PCIE_WINDOW_S = 0.05
"""The driver counts two times 20 ms for the bytes over PCIe, while the caller waits."""
_PCIE_EVERY = 4
"""Samples for each of those."""
_MOST_EMPTY = 8
"""Times in a row that the driver has no sample of its own, after which its utilisation rate is read instead."""
_REASONS = {"power": 0x04 | 0x80, "heat": 0x20 | 0x40, "hardware slowdown": 0x08, "clocks set by the user": 0x02}
"""Bits of nvmlClocksEventReasons; the bindings have renamed the constants, the bits stay."""


class NoGpuError(Exception):
    """The device cannot be read; the message is one line of what is missing and how to get it."""


@dataclass(frozen=True)
class GpuSample:
    """Some values at a moment."""

    time_s: float
    window_s: float
    """How far back from then they look."""
    values: dict[str, float] = field(default_factory=dict)
    """`busy_share`, `memory_bytes`, `sm_clock_hz`, `pcie_bytes_per_s`."""
    throttled: tuple[str, ...] | None = None
    """Why the clocks were held down."""


class GpuUsage:
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
        self._clock, self._wall_clock = clock, wall_clock
        try:
            self._nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            raise NoGpuError(
                "Utilisation, memory and clocks of the GPU: pip install 'torch-bottleneck[nvidia]' shows them."
            ) from None
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise NoGpuError(f"Utilisation of the GPU: the driver's library does not start ({error}).") from None
        self._handle = self._find(device)
        self._seen_us = 0
        self._samples_taken = 0
        self._has_samples, self._empty = True, 0
        self.max_sm_clock_hz = self._sm_clock_hz(self._nvml.nvmlDeviceGetMaxClockInfo)

    def _find(self, device: torch.device) -> Any:
        """Return the driver's handle; its numbers are not torch's, which CUDA_VISIBLE_DEVICES changes."""
        nvml, tried = self._nvml, []
        try:
            names = list(_names(device))
        except (RuntimeError, AssertionError) as error:
            names, tried = [], [str(error)]
        for by_uuid, name in names:
            try:
                return nvml.nvmlDeviceGetHandleByUUID(name) if by_uuid else nvml.nvmlDeviceGetHandleByPciBusId(name)
            except nvml.NVMLError as error:
                tried.append(str(error))
        self.close()
        raise NoGpuError(f"Utilisation of {device}: the driver does not know it ({'; '.join(tried) or 'no name'}).")

    def _sm_clock_hz(self, function: Callable[..., Any]) -> float | None:
        megahertz = self._ask(function, self._nvml.NVML_CLOCK_SM)
        return None if megahertz is None else megahertz * 1e6

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the driver reports of the device; None where it does not."""
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None

    # --- while the job runs --------------------------------------------------------------------------------

    def sample(self) -> list[GpuSample]:
        """Return what is known since the last call. It takes some 0.1 ms, and now and then 40 ms."""
        nvml, values = self._nvml, {}
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo)
        if memory is not None:
            values["memory_bytes"] = float(memory.used)
        clock_hz = self.sm_clock_hz()
        if clock_hz is not None:
            values["sm_clock_hz"] = clock_hz
        found = [GpuSample(self._clock(), 0.0, values, self._throttled())]
        found.extend(self._busy())
        if self._samples_taken % _PCIE_EVERY == 0:
            found.extend(self._pcie())
        self._samples_taken += 1
        return found

    def sm_clock_hz(self) -> float | None:
        """Return the clock of the multiprocessors at this moment; None where it is unknown."""
        return self._sm_clock_hz(self._nvml.nvmlDeviceGetClockInfo)

    def _busy(self) -> Iterator[GpuSample]:
        """Yield the share of time in which any kernel ran: the driver's own samples, each with its time."""
        nvml = self._nvml
        if self._has_samples:
            try:
                _, taken = nvml.nvmlDeviceGetSamples(self._handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, self._seen_us)
            except nvml.NVMLError as error:
                # 'Not found' means nothing new, or, where it goes on, the same as any other error: no samples at all.
                self._empty += 1
                self._has_samples = error.value == nvml.NVML_ERROR_NOT_FOUND and self._empty < _MOST_EMPTY
                taken = ()
            else:
                self._empty = 0
            offset_s = self._clock() - self._wall_clock()
            for one in taken:
                if self._seen_us:
                    window_s = (one.timeStamp - self._seen_us) * 1e-6
                    share = one.sampleValue.uiVal / 100
                    yield GpuSample(one.timeStamp * 1e-6 + offset_s, window_s, {"busy_share": share})
                self._seen_us = one.timeStamp
        if not self._has_samples:
            rates = self._ask(nvml.nvmlDeviceGetUtilizationRates)
            if rates is not None:
                yield GpuSample(self._clock(), _LONGEST_WINDOW_S, {"busy_share": rates.gpu / 100})

    def _pcie(self) -> Iterator[GpuSample]:
        nvml = self._nvml
        sides = [
            self._ask(nvml.nvmlDeviceGetPcieThroughput, side)
            for side in (nvml.NVML_PCIE_UTIL_TX_BYTES, nvml.NVML_PCIE_UTIL_RX_BYTES)
        ]
        if None not in sides:
            # The driver counts in KB/s.
            yield GpuSample(self._clock(), _PCIE_WINDOW_S, {"pcie_bytes_per_s": 1000.0 * sum(sides)})

    def _throttled(self) -> tuple[str, ...] | None:
        nvml = self._nvml
        # Called 'throttle reasons' by older drivers and bindings.
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            bits = self._ask(getattr(nvml, name)) if hasattr(nvml, name) else None
            if bits is not None:
                return tuple(reason for reason, mask in _REASONS.items() if bits & mask)
        return None

    # --- beside it -----------------------------------------------------------------------------------------

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


def _names(device: torch.device) -> Iterator[tuple[bool, str]]:
    """Yield what the driver may know a device by: (whether it is a UUID, the name)."""
    properties: Any = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    if uuid is not None:
        # Torch leaves out what the driver puts in front: a whole device, or a part of one.
        yield from ((True, f"{kind}-{uuid}") for kind in ("GPU", "MIG"))
    if getattr(properties, "pci_bus_id", None) is not None:
        place = (getattr(properties, "pci_domain_id", 0), properties.pci_bus_id, properties.pci_device_id)
        yield False, "{:08X}:{:02X}:{:02X}.0".format(*place)
