"""Counters and samples of the blocks, before anything is concluded from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from bottleneck.measure.ladder import Arm
from bottleneck.measure.usage.nvml import GpuSample
from bottleneck.measure.usage.process import MemoryReading

Reading = Mapping[str, float]
"""Counters at one moment: `main_s` and `worker:NUMBER` (CPU seconds), and those of `MachineUsage.counters`."""


@dataclass(frozen=True)
class TimedReading:
    """Counters and when they were read."""

    time_s: float
    values: Reading


@dataclass(frozen=True)
class BlockReadings:
    """The counters at the edges of a block."""

    arm: Arm
    begin: TimedReading
    end: TimedReading


@dataclass
class UsageSamples:
    """Everything that was read.

    Attributes:
        cores: CPUs that `busy_s` and `total_s` are about.
        quota_cores: Processor time that the control groups grant; None without a limit.
        readings: Counters that were read by the thread, where reading them at the edges would take too long.
        samples: Of gauges: `runnable`.
        memory: Of all workers together.
        workers: How many there are.
        worker_threads: Most that any worker had.
        affinity: Cores that each worker may run on.
        missing: One line each on what could not be read, in order.
    """

    cores: int
    quota_cores: float | None
    machine_cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    blocks: list[BlockReadings] = field(default_factory=list)
    readings: list[TimedReading] = field(default_factory=list)
    samples: list[TimedReading] = field(default_factory=list)
    gpu: list[GpuSample] = field(default_factory=list)
    memory: list[MemoryReading] = field(default_factory=list)
    workers: int = 0
    worker_threads: int | None = None
    main_threads: int | None = None
    affinity: list[set[int]] = field(default_factory=list)
    main_affinity: int | None = None
    shm_size_bytes: int | None = None
    shm_peak_bytes: int = 0
    has_gpu: bool = False
    max_sm_clock_hz: float | None = None
    gpu_other_processes: int | None = None
    missing: dict[str, None] = field(default_factory=dict)
