"""Observations of the job itself: its loader, a batch, the train step, waits, and a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bottleneck.results.values import Block, Count, Interval, Quantity, left_out

# --- the loader, its dataset and its workers ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RecordedBatches:
    """Batches that were recorded to be replayed."""

    count: Count | None = None
    size_cv: Quantity | None = None
    """Coefficient of variation of their sizes."""


@dataclass(frozen=True, kw_only=True)
class LoadedBatches:
    """Batches that workers made with everything real, while the original job was measured."""

    count: Count | None = None
    seconds_each: Quantity | None = None
    """Mean time of a worker for one."""
    cv: Quantity | None = None
    """Coefficient of variation of that time."""


@dataclass(frozen=True, kw_only=True)
class DeviceTime:
    """Time of an asynchronous device for batches of raw, by events of the stream that the loop computes on."""

    batches: Count | None = None
    copy_s_per_batch: Quantity | None = None
    """Copy; part of the step if the loop itself copies."""
    step_s_per_batch: Quantity | None = None
    idle_s_per_batch: Quantity | None = None
    efficiency: Interval | None = None
    """Share of the step in the total time."""


@dataclass(frozen=True, kw_only=True)
class StageClock:
    """Time of a stage by the clock of the worker that runs it."""

    stage: str | None = None
    seconds_each: Quantity | None = None
    """Mean time for a batch in one worker."""
    cv: Quantity | None = None
    """Coefficient of variation between batches; None for a single batch."""


@dataclass(frozen=True, kw_only=True)
class ClockedBatches:
    """Batches whose stages were timed within the workers, with everything real and without the train step."""

    count: Count | None = None
    stages: tuple[StageClock, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OpenHandle:
    """A resource that was open when workers were forked, and that they use."""

    path: str | None = None
    """Path in the dataset."""
    type: str | None = None


@dataclass(frozen=True, kw_only=True)
class LoaderFacts:
    """Facts about the loader and its dataset that no throughput shows."""

    start_method: str | None = None
    fetches_batches: bool | None = None
    iterable: bool | None = None
    mentions_non_blocking: bool | None = None
    pinned_bytes_per_s: Quantity | None = None
    """Rate of copies from pinned memory to the device; None unless it is a CUDA device."""
    transform_modules: Mapping[str, str] = field(default_factory=dict)
    """Package of each transform, by its path."""
    dataset_pickle_bytes: Quantity | None = None
    dataset_pickle_s: Quantity | None = None
    dataset_pickle_complete: bool | None = left_out()
    python_objects: Quantity | None = None
    python_object_bytes: Quantity | None = None
    python_objects_largest: str | None = None
    """Attribute that holds most of them."""
    forgotten: str | None = left_out()
    """Dict of the dataset in which workers kept samples over several epochs, which the job's workers forget."""
    own_workers: Count | None = left_out()
    """Worker processes of a loader inside a dataset that is itself iterated without workers."""
    batches_of_workers: tuple[Quantity, ...] = left_out(())
    """Each worker's share of the batches that were observed."""
    idle_workers: Count | None = left_out()
    """Workers without a share of a stream."""
    repeating_workers: Count | None = left_out()
    """Workers whose streams begin with the same samples."""
    made_per_sample: Count | None = left_out()
    """Samples that each worker of a stream makes per sample delivered, if equal for all and over 1."""
    shards: Count | None = left_out()
    """Number of parts by which a stream is divided, if its library shows that."""
    library_threads: Count | None = left_out()
    """Threads with which a library computes in a worker: the largest known number."""
    open_handles: tuple[OpenHandle, ...] = ()
    decoded_pixels_per_sample: Quantity | None = None
    used_pixels_per_sample: Quantity | None = None
    loaded_bytes_per_sample: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class SourcePlace:
    """Place in the user's source where a setting is made that an advice may concern."""

    name: str
    """A setting of the loader, or the path of a transform in the dataset."""
    file: str
    """Path; relative to the working directory if inside it."""
    line: Count
    """Number of the text's first line, from 1."""
    text: str
    """Text of whole lines."""
    begin: Count
    """Begin of the place in the text, in characters."""
    end: Count


@dataclass(frozen=True, kw_only=True)
class ThreadTrial:
    """The job with one thread in each worker, in turns with the original job: blocks by round."""

    as_it_is: tuple[Block, ...] = ()
    one_thread: tuple[Block, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WorkersWay:
    """The job with other workers, which took as long for a batch as its loader does: blocks by round."""

    num_workers: Count | None = None
    threads: Count | None = None
    """Threads of the train step, in the main process."""
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WorkersTrial:
    """More workers than the job has, in turns with the unchanged job."""

    threads: Count | None = None
    """Threads of the unchanged train step."""
    as_it_is: tuple[Block, ...] = ()
    ways: tuple[WorkersWay, ...] = ()


# --- a batch ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TensorSeen:
    """A tensor of a batch."""

    path: str | None = None
    """Path in the batch, such as `[0]`; empty for the batch itself."""
    shape: tuple[Count, ...] = ()
    dtype: str | None = None
    bytes: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class Saving:
    """A smaller form in which a tensor could travel."""

    id: str | None = None
    path: str | None = None
    what: str | None = None
    how: str | None = None
    bytes_saved: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class PackableSeen:
    """Small tensors at one place of every sample of a batch, which could travel as one tensor."""

    path: str | None = None
    """Their paths in the batch, with `*` for each index that varies."""
    tensors: Quantity | None = None
    bytes: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class PickledSeen:
    """Objects at one place of a batch that are pickled to reach the main process: medians of a few batches."""

    path: str | None = None
    """As that of packable tensors."""
    type: str | None = None
    """Type of most of them."""
    objects: Quantity | None = None
    """Number of them in a batch."""
    python_objects: Quantity | None = None
    """Python objects that they consist of: at most 200,000 are counted."""
    pickled_bytes: Quantity | None = None
    """Size without tensors."""
    pickle_s: Quantity | None = None
    """Time for a batch in a worker, without collections of garbage."""
    unpickle_s: Quantity | None = None
    """Time for a batch in the main process, which also releases them."""
    unread: bool | None = None
    """True if the train step uses none of them; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class Payload:
    """Contents of one batch."""

    bytes: Quantity | None = None
    tensor_count: Quantity | None = None
    tensors: tuple[TensorSeen, ...] = ()
    """The first tensors."""
    objects: Quantity | None = None
    savings: tuple[Saving, ...] = ()
    """Savings, the largest first."""
    unread: tuple[str, ...] | None = None
    """Paths of the tensors that the train step never reads; None if unknown."""
    unread_bytes: Quantity | None = None
    packable: tuple[PackableSeen, ...] = left_out(())
    """Places of several small tensors each, the most first."""
    packed_tensor_count: Quantity | None = left_out()
    """Tensors of the batch if each of these places were one, with one more for each way of dividing them again."""
    pickled: tuple[PickledSeen, ...] = left_out(())
    """Objects that are pickled with the batch, the slowest first; empty without workers."""
    descriptors_in_flight: Quantity | None = left_out()
    """File descriptors that the tensors of all batches in flight may take; None if they are not passed as such."""


@dataclass(frozen=True, kw_only=True)
class SnapshotsSeen:
    """Snapshots of a loader that can resume: the state of its dataset, sent along with batches; means of one."""

    interval: Count | None = None
    """Batches from one to the next, `snapshot_every_n_steps`."""
    state_s: Quantity | None = None
    """Time in a worker to call `state_dict`, and to find what has changed."""
    pickle_s: Quantity | None = None
    unpickle_s: Quantity | None = None
    """Time in the main process."""
    pickled_bytes: Quantity | None = None
    """Size of what has changed."""


# --- the train step -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TrainingSeen:
    """The train step while blocks were measured."""

    put_back: Quantity | None = left_out()
    put_back_skipped: Quantity | None = left_out()
    blocks: Count | None = None
    """Number of blocks with fresh batches."""
    distinct_shapes: Count | None = None
    """Shapes of all batches; None on a CPU, where shapes are not recorded."""
    shapes_new_in_blocks: Quantity | None = None
    """Shapes that occurred for the first time in these blocks."""
    compiled_in_blocks: Quantity | None = None
    allocations_in_blocks: Quantity | None = None
    allocation_retries_in_blocks: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts about the model and the device."""

    computed_dtypes: Mapping[str, Quantity] | None = None
    """Matrix products and convolutions of the traced steps, by type."""
    device_capability: tuple[Count, Count] | None = None
    cpu_bfloat16: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Time of an operator in the traced steps."""

    name: str | None = None
    self_s_per_step: Quantity | None = None
    """Time on the host, without the operators that it calls."""
    device_s_per_step: Quantity | None = None
    """None without a device."""
    calls_per_step: Quantity | None = None
    share: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class Synchronisation:
    """A line that makes the host wait for the device within a step."""

    name: str | None = None
    """File and line."""
    calls_per_step: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class TracedSteps:
    """Some steps of one experiment under torch's profiler."""

    steps: Count | None = None
    seconds_per_step: Quantity | None = None
    device_busy_share: Quantity | None = None
    """Share of a step in which the device computes; None without one."""
    device_busy_s_per_step: Quantity | None = None
    launches_per_step: Quantity | None = None
    products_s_per_step: Quantity | None = None
    """Time of matrix products and convolutions, on the device if there is one."""
    top: tuple[Operator, ...] = ()
    synchronisations: tuple[Synchronisation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Traces:
    """Traced steps, by experiment."""

    device: TracedSteps = left_out(TracedSteps())
    raw: TracedSteps = left_out(TracedSteps())


# --- waits --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EpochGap:
    """Wait of the job for the first batch of an epoch."""

    seconds: Quantity | None = None
    """Time from the last batch of an epoch to the first of the next."""
    low_s: Quantity | None = None
    high_s: Quantity | None = None
    order_s: Quantity | None = None
    """Minimum part of it for choosing the order of the samples."""
    persistent_workers: bool | None = None
    started_anew: bool | None = None
    """True if workers are started again; None without workers."""
    batches: Quantity | None = None
    """Batches of an epoch; a partial one counts as a fraction."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Times in which the main process waits for a batch, in seconds."""

    p50: Quantity | None = None
    p95: Quantity | None = None
    p99: Quantity | None = None
    max: Quantity | None = None
    count: Count | None = None
    mean: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Waits for a batch that are far longer than usual."""

    count: Count | None = None
    threshold_s: Quantity | None = None
    """Minimum wait that is a stall."""
    lost_share: Quantity | None = None
    """Share of the main process's time that they take."""
    period_batches: Count | None = None
    """Distance between them, if regular."""
    period_s: Quantity | None = None


# --- a profile ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FunctionSeen:
    """A function of the workers' code, and its own time."""

    function: str | None = None
    file: str | None = None
    """Path relative to the working directory, or shortened; no home directory shows."""
    line: Count | None = None
    """Line on which the function begins; None for native code."""
    own_share: Quantity | None = None
    """Share of all samples of the user's code, computing or waiting."""
    stage: str | None = None
    """Stage for which it works; None if the stacks do not show it."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profile of the workers' code."""

    sampler: str | None = None
    """`py-spy`; a sampler inside the workers, `in-process`, in files of earlier versions."""
    rate_hz: Quantity | None = None
    seconds: Quantity | None = None
    samples: Quantity | None = None
    processes: Count | None = None
    in_workers: bool | None = None
    functions: tuple[FunctionSeen, ...] = ()
