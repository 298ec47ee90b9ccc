"""What the machine and the processes of the job did while blocks were measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from bottleneck.results.evidence.fields import MOST_ROWS, left_out, null
from bottleneck.results.values import Count, Quantity


@dataclass(frozen=True, kw_only=True)
class Cores:
    """Cores that the job may use."""

    usable: Quantity | None = None
    """Affinity and quota counted in; need not be whole."""
    quota: Quantity | None = None
    """Of the container."""
    allowed: Count | None = None
    """By affinity."""


@dataclass(frozen=True, kw_only=True)
class GpuUsage:
    """A device while blocks were measured."""

    busy_share: Quantity | None = None
    """Share of the time in which any kernel ran."""
    memory_bytes: Quantity | None = None
    """The most that was in use."""
    pcie_bytes_per_s: Quantity | None = None
    """To the device and back."""
    sm_clock_hz: Quantity | None = None
    max_sm_clock_hz: Quantity | None = None
    throttled: tuple[str, ...] = ()
    """Reasons for a lower clock."""


@dataclass(frozen=True, kw_only=True)
class ExperimentUsage:
    """What was used while the blocks of an experiment were measured."""

    name: str | None = None
    """The experiment, or the stage that it is without."""
    mode: str | None = None
    """`coupled`, `drained`, `workers`, `without`, `workers without` or `serving`."""
    seconds: Quantity | None = None
    """All of its blocks."""
    samples: Quantity | None = None
    """Readings of the counters."""
    cores_busy: Quantity | None = None
    """Cores that all processes of the machine kept busy."""
    cores_main: Quantity | None = None
    cores_workers: Quantity | None = None
    cores_other: Quantity | None = None
    """Cores that processes outside of the job kept busy."""
    runnable_per_core: Quantity | None = None
    """Threads that ran or could."""
    throttled_share: Quantity | None = None
    """Share of the quota's periods in which the job was stopped."""
    disk_read_bytes_per_s: Quantity | None = None
    disk_write_bytes_per_s: Quantity | None = None
    disk_busy_share: Quantity | None = None
    """Share of the time in which the busiest disk was."""
    disk_requests_in_flight: Quantity | None = left_out()
    """Of that disk, at once; None where no disk is known."""
    disk_rotational: bool | None = left_out()
    """That disk turns; None where no disk is known."""
    network_bytes_per_s: Quantity | None = None
    """Received and sent."""
    gpu: GpuUsage = null(GpuUsage())
    """Empty without an NVIDIA device that can be watched."""


@dataclass(frozen=True, kw_only=True)
class MainProcess:
    """The main process."""

    threads: Count | None = None


@dataclass(frozen=True, kw_only=True)
class WorkersUsage:
    """The workers while blocks were measured."""

    count: Count | None = None
    threads: Count | None = None
    """Of each."""
    private_bytes: Quantity | None = None
    """Of all together."""
    shared_bytes: Quantity | None = None
    private_growth_bytes_per_s: Quantity | None = None
    private_growth_error_bytes_per_s: Quantity | None = None
    """Standard error of the growth."""
    cores_busy: tuple[Quantity, ...] = ()
    """Cores that each keeps busy in the job as it is."""
    affinity_cores: Count | None = None
    """Cores that a worker may run on, at least."""
    affinity_cores_together: Count | None = None
    """Cores that any of them may run on."""
    main_affinity_cores: Count | None = None
    """Cores that the main process may run on."""
    cache_bytes: Quantity | None = None
    """Caches of this diagnosis in their memory."""


@dataclass(frozen=True, kw_only=True)
class SharedMemory:
    """`/dev/shm`."""

    size_bytes: Quantity | None = None
    peak_used_bytes: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class BlocksOverTime:
    """A block, or some neighbours, in a series over time."""

    begin_s: Quantity | None = None
    """From the beginning of the first block, as is the end."""
    end_s: Quantity | None = None
    name: str | None = None
    """The experiment; None where several share the row."""
    mode: str | None = None
    """As in `ExperimentUsage`."""
    cores_busy: Quantity | None = None
    """Cores that all processes of the machine kept busy."""
    cores_job: Quantity | None = None
    disk_read_bytes_per_s: Quantity | None = None
    gpu_busy_share: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryOverTime:
    """Memory of the workers at one moment."""

    time_s: Quantity | None = None
    """From the beginning of the first block."""
    private_bytes: Quantity | None = None
    shared_bytes: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class UsageSeries:
    """What was used over time."""

    blocks_per_row: Count | None = None
    """Neighbours that share a row."""
    blocks: Annotated[tuple[BlocksOverTime, ...], Meta(max_length=MOST_ROWS)] = ()
    """In the order in which they were measured."""
    memory: Annotated[tuple[MemoryOverTime, ...], Meta(max_length=MOST_ROWS)] = ()


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    """What the machine and the processes of the job did while blocks were measured."""

    interval_s: Quantity | None = None
    """Between two readings of the counters."""
    samples: Quantity | None = None
    """Readings of the counters."""
    cores: Cores = null(Cores())
    experiments: tuple[ExperimentUsage, ...] = ()
    main: MainProcess = null(MainProcess())
    workers: WorkersUsage = null(WorkersUsage())
    shared_memory: SharedMemory = null(SharedMemory())
    gpu_other_processes: Count | None = None
    """Other processes that use the device."""
    series: UsageSeries = left_out(UsageSeries())
    missing: tuple[str, ...] = ()
    """Sentences on what could not be measured."""
