"""The records of a plan, as written to JSON version 1: what machine a job needs, by what was measured of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bottleneck.results.records import Interval, Tool
from bottleneck.results.values import Amount, Count

Resource = Literal["device", "cores", "storage"]


@dataclass(frozen=True)
class PlanSource:
    """A result that the plan rests on, and what the plan says of its setting."""

    label: str
    num_workers: Count
    cores: Amount
    """That the job had for itself."""
    samples_per_s: Amount
    predicted_samples_per_s: Amount


@dataclass(frozen=True)
class PerSample:
    """What a sample takes."""

    worker_cpu_s: Interval
    worker_wait_s: Interval
    """Time of a worker in which it waits for a disk, the network or a lock."""
    main_cpu_s: Amount
    """CPU time of the main process: of the train step, and of receiving batches."""
    read_bytes: Amount | None
    copied_bytes: Amount | None
    """That go from the worker to the device."""


@dataclass(frozen=True)
class PlannedMachine:
    """What the job gets of a machine."""

    gpus: Count
    cores: Amount
    workers: Count
    samples_per_s: Interval
    """All four are of all GPUs together."""
    efficiency: Interval
    """As a part of what the devices can do."""
    used_up_first: Resource
    gpus_fed: Interval
    """GPUs that its cores and its storage keep busy."""
    price_per_million: Amount | None
    """Of a million samples; None without a price."""


@dataclass(frozen=True)
class PlanResult:
    """A plan, as written to JSON version 1."""

    schema_version: int
    kind: Literal["plan"]
    tool: Tool
    environment: Mapping[str, Any]
    pipeline: Mapping[str, Any]
    """Both are those of the first result."""
    sources: tuple[PlanSource, ...]
    sentence: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    device_samples_per_s: Interval
    """What the device that was asked about does with free input."""
    per_sample: PerSample
    cores_per_gpu: Interval
    """That keep the device busy."""
    workers_per_gpu: Count
    worker_bytes: Amount | None
    """Memory of one worker, without what it shares with the main process."""
    shm_bytes_per_worker: Amount | None
    """Of `/dev/shm`, for the batches that it may have ready."""
    curve: tuple[PlannedMachine, ...]
    """Machines of one GPU, by their cores."""
    machine: PlannedMachine
    """The one that was asked about."""
    rate_unit: str = "samples/s"
    """What the throughputs count; where it is `batches/s`, a sample is a batch."""
