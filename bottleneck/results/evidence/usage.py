"""What the machine and the processes of the job did while blocks were measured."""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.evidence.fields import left_out, null
from bottleneck.results.values import Count, Quantity


@dataclass(frozen=True, kw_only=True)
class Cores:
    """Cores that the job may use."""

    usable: Quantity | None = None
    """Affinity and quota counted in; need not be whole."""
    quota: Quantity | None = None
    allowed: Count | None = None


@dataclass(frozen=True, kw_only=True)
class GpuUsage:
    """A device while blocks were measured."""

    busy_share: Quantity | None = None
    """Share of the time in which any kernel ran."""
    sm_clock_hz: Quantity | None = None
    max_sm_clock_hz: Quantity | None = None
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExperimentUsage:
    """What was used while the blocks of an experiment were measured."""

    name: str | None = None
    """The experiment, or the stage that it is without."""
    mode: str | None = None
    """`coupled`, `drained`, `workers`, `without`, `workers without` or `serving`."""
    seconds: Quantity | None = None
    cores_busy: Quantity | None = None
    """Cores that all processes of the machine kept busy."""
    cores_main: Quantity | None = None
    cores_workers: Quantity | None = None
    cores_other: Quantity | None = None
    """Cores that processes outside of the job kept busy."""
    throttled_share: Quantity | None = None
    """Share of the quota's periods in which the job was stopped."""
    disk_read_bytes_per_s: Quantity | None = None
    disk_write_bytes_per_s: Quantity | None = None
    disk_busy_share: Quantity | None = None
    disk_requests_in_flight: Quantity | None = left_out()
    """Of the busiest disk, at once; None where no disk is known."""
    disk_rotational: bool | None = left_out()
    """The busiest disk turns; None where no disk is known."""
    network_bytes_per_s: Quantity | None = None
    gpu: GpuUsage = null(GpuUsage())
    """Empty without an NVIDIA device that can be watched."""


@dataclass(frozen=True, kw_only=True)
class WorkersUsage:
    """The workers while blocks were measured."""

    count: Count | None = None
    threads: Count | None = None
    private_bytes: Quantity | None = None
    private_growth_bytes_per_s: Quantity | None = None
    private_growth_error_bytes_per_s: Quantity | None = None
    cores_busy: tuple[Quantity, ...] = ()
    """Of each worker, in the job as it is."""
    affinity_cores: Count | None = None
    affinity_cores_together: Count | None = None
    main_affinity_cores: Count | None = None
    cache_bytes: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class SharedMemory:
    """`/dev/shm`."""

    size_bytes: Quantity | None = None
    peak_used_bytes: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    """What the machine and the processes of the job did while blocks were measured."""

    cores: Cores = null(Cores())
    experiments: tuple[ExperimentUsage, ...] = ()
    workers: WorkersUsage = null(WorkersUsage())
    shared_memory: SharedMemory = null(SharedMemory())
    gpu_other_processes: Count | None = None
    missing: tuple[str, ...] = ()
