"""Records of a plan, as written to JSON version 1: the machine that a job needs, from measurements of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bottleneck.results.records import Interval, Tool
from bottleneck.results.values import Amount, Count

Resource = Literal["device", "cores", "storage"]


@dataclass(frozen=True)
class PlanSource:
    """A result on which the plan is based, and the plan's prediction for its setting."""

    label: str
    num_workers: Count
    cores: Amount
    """Cores available to the job alone."""
    samples_per_s: Amount
    predicted_samples_per_s: Amount


@dataclass(frozen=True)
class PerSample:
    """Resources per sample."""

    worker_cpu_s: Interval
    worker_wait_s: Interval
    """Time in which a worker waits for a disk, the network or a lock."""
    main_cpu_s: Amount
    """CPU time of the main process: of the train step, and of receiving batches."""
    read_bytes: Amount | None
    copied_bytes: Amount | None
    """Bytes copied from the worker to the device."""


@dataclass(frozen=True)
class PlannedMachine:
    """The job on a machine."""

    gpus: Count
    cores: Amount
    workers: Count
    samples_per_s: Interval
    """Throughput; like the three numbers before, of all GPUs together."""
    efficiency: Interval
    """Throughput as a share of what the devices can do."""
    used_up_first: Resource
    gpus_fed: Interval
    """GPUs that the machine's cores and storage keep busy."""
    price_per_million: Amount | None
    """Price of a million samples; None without a price."""


@dataclass(frozen=True)
class PlanResult:
    """A plan, as written to JSON version 1."""

    schema_version: int
    kind: Literal["plan"]
    tool: Tool
    environment: Mapping[str, Any]
    pipeline: Mapping[str, Any]
    """Environment and pipeline are those of the first result."""
    sources: tuple[PlanSource, ...]
    sentence: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    device_samples_per_s: Interval
    """Throughput of the requested device with free input."""
    per_sample: PerSample
    cores_per_gpu: Interval
    """Cores that keep the device busy."""
    workers_per_gpu: Count
    worker_bytes: Amount | None
    """Memory of one worker, without memory shared with the main process."""
    shm_bytes_per_worker: Amount | None
    """Bytes of `/dev/shm` for the batches that a worker may have ready."""
    curve: tuple[PlannedMachine, ...]
    """Machines with one GPU, by their cores."""
    machine: PlannedMachine
    """The requested machine."""
    rate_unit: str = "samples/s"
    """Unit of the throughputs; with `batches/s`, a sample is a batch."""
