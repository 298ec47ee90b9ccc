"""Facts about the loader, its dataset and its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bottleneck.results.evidence.fields import left_out, null
from bottleneck.results.values import Count, Quantity


@dataclass(frozen=True, kw_only=True)
class TransformSeen:
    """The calls of a single transform."""

    stage: str | None = None
    path: str | None = None
    """Where it is in the dataset."""
    name: str | None = None
    calls_per_sample: Quantity | None = None
    wall_s_per_call: Quantity | None = None
    cpu_s_per_call: Quantity | None = None
    share: Quantity | None = None
    waiting_share: Quantity | None = left_out()
    output: str | None = None


@dataclass(frozen=True, kw_only=True)
class RecordedBatches:
    """Batches that were recorded to be served again."""

    count: Count | None = None
    size_cv: Quantity | None = None
    """Standard deviation of their sizes over the mean."""


@dataclass(frozen=True, kw_only=True)
class WorkerThreads:
    """Threads of a worker, by library."""

    torch: Count | None = None
    opencv: Quantity | None = None
    """OpenCV may report -1."""


@dataclass(frozen=True, kw_only=True)
class OpenHandle:
    """What was open when workers were forked, and is used there."""

    path: str | None = None
    """Where it is in the dataset."""
    type: str | None = None


@dataclass(frozen=True, kw_only=True)
class LoaderFacts:
    """Facts about the loader and its dataset that no throughput shows."""

    start_method: str | None = None
    fetches_batches: bool | None = None
    iterable: bool | None = None
    pin_thread: bool | None = None
    mentions_non_blocking: bool | None = None
    pinned_bytes_per_s: Quantity | None = None
    """How fast the device is sent what lies in pinned memory; None but for CUDA devices."""
    tokenizers: tuple[str, ...] = ()
    transform_modules: Mapping[str, str] = field(default_factory=dict)
    """The package of each transform, by its path."""
    dataset_pickle_bytes: Quantity | None = None
    dataset_pickle_s: Quantity | None = None
    dataset_pickle_complete: bool | None = left_out()
    python_objects: Quantity | None = None
    python_object_bytes: Quantity | None = None
    python_objects_largest: str | None = None
    """The attribute that holds most of them."""
    worker_threads: WorkerThreads = null(WorkerThreads())
    tokenizers_parallelism: str | None = None
    forgotten: str | None = left_out()
    """A dict of the dataset in which workers kept samples over several epochs, and those of the job forget them."""
    own_workers: Count | None = left_out()
    """Processes that a dataset which is iterated without workers takes its samples from, by a loader within it."""
    open_handles: tuple[OpenHandle, ...] = ()
    decoded_pixels_per_sample: Quantity | None = None
    used_pixels_per_sample: Quantity | None = None
    loaded_bytes_per_sample: Quantity | None = None
    descriptors_needed: Quantity | None = None
    descriptor_limit: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class SourcePlace:
    """Where the user's source sets what an advice may be about."""

    name: str
    """A setting of the loader, or the path of a transform in the dataset."""
    file: str
    """Relative to the working directory."""
    line: Count
    """Of the first line of the text, from 1."""
    text: str
    """Whole lines."""
    begin: Count
    """Where in the text it begins, in characters."""
    end: Count
