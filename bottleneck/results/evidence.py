"""What was seen beside the blocks: the evidence, written by the measuring, read by analysis and reports.

Frozen dataclasses like all records, and no `msgspec.Struct`: `dataclasses.replace` and `fields` go on to work for all
of them alike, and a Struct leaves out either all of its defaults or none in JSON, where some keys are null and others
missing.

What is not known is None, or a part in which nothing is known, so that a reader goes straight to the number:
`evidence.cold.files`. In JSON it is null, unless its field is `left_out`. A null and a missing key are the same to a
reader, and keys of a later version are ignored. `docs/reference/json.md` says the same for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from bottleneck.results.values import Amount, Count, Interval, Quantity

MOST_ROWS = 5_000
"""Rows of a list whose length goes with the job; what is written is shorter."""

Positions = Annotated[str, Meta(pattern=r"^[0-9]{1,4}( [0-9]{1,4}){0,149}\Z")]
"""Positions in a list of at most `MOST_ROWS`, as text: a list of numbers would take a line for each in a file."""


def left_out(default: Any = None) -> Any:
    """A field that is missing in JSON where it holds its default."""
    return field(default=default, metadata={"unknown": "left out"})


def null(part: Any) -> Any:
    """A field that holds a part of the evidence, and is null in JSON where nothing in that is known."""
    return field(default=part, metadata={"unknown": "null"})


# --- the loader ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EpochGap:
    """How long the job waits for the first batch of an epoch."""

    seconds: Quantity | None = None
    """From the last batch of an epoch to the first of the next."""
    low_s: Quantity | None = None
    """Lower bound of that."""
    high_s: Quantity | None = None
    """Upper bound of that."""
    order_s: Quantity | None = None
    """What of it choosing the order of the samples takes, at least."""
    persistent_workers: bool | None = None
    """What the user's loader says."""
    started_anew: bool | None = None
    """The workers are; None without workers."""
    batches: Quantity | None = None
    """Of an epoch, of which a partial one counts as its part."""


@dataclass(frozen=True, kw_only=True)
class Handoff:
    """What handing over a batch takes, of a job without workers, from a worker that does nothing else."""

    s_per_batch: Quantity | None = None
    """By the clock."""
    main_cpu_s_per_batch: Quantity | None = None
    """CPU time of the main process."""
    worker_cpu_s_per_batch: Quantity | None = left_out()
    """CPU time of the worker."""


@dataclass(frozen=True, kw_only=True)
class WayTried:
    """One way to load that was tried beside the job as it is."""

    num_workers: Count
    """So many workers."""
    torch_threads: Count
    """Threads of torch in the main process."""
    pairs: tuple[tuple[Quantity, Quantity], ...] = ()
    """Seconds per batch: as the job is, and fed in this way."""


@dataclass(frozen=True, kw_only=True)
class WorkersTried:
    """What workers would bring a job that has none."""

    loading_s_per_batch: Quantity | None = None
    """What loading takes in the main process."""
    loading_cpu_s_per_batch: Quantity | None = None
    """CPU time of that."""
    ways: tuple[WayTried, ...] = ()
    """The ways to load that were tried."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How long the main process waits for a batch, in seconds."""

    p50: Quantity | None = None
    """Median."""
    p95: Quantity | None = None
    """One in twenty is longer."""
    p99: Quantity | None = None
    """One in a hundred is longer."""
    max: Quantity | None = None
    """The longest."""
    count: Count | None = None
    """Batches."""
    mean: Quantity | None = None
    """Mean."""


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Waits for a batch that are far over the usual one."""

    count: Count | None = None
    """How many."""
    threshold_s: Quantity | None = None
    """A wait over this is a stall."""
    lost_share: Quantity | None = None
    """Part of the main process's time that they take."""
    period_batches: Count | None = None
    """Their distance, where it is regular."""
    period_s: Quantity | None = None
    """The same in seconds."""


@dataclass(frozen=True, kw_only=True)
class TransformSeen:
    """A single transform, as it was observed."""

    stage: str | None = None
    """The stage that it is part of."""
    path: str | None = None
    """Where it is in the dataset."""
    name: str | None = None
    """Its class or function."""
    calls_per_sample: Quantity | None = None
    """How often it is called."""
    wall_s_per_call: Quantity | None = None
    """By the clock."""
    cpu_s_per_call: Quantity | None = None
    """CPU time."""
    share: Quantity | None = None
    """Its part of the stage's time."""
    output: str | None = None
    """Size and type of what it returns."""


@dataclass(frozen=True, kw_only=True)
class RecordedBatches:
    """Batches that were recorded to be served again."""

    count: Count | None = None
    """How many."""
    size_cv: Quantity | None = None
    """Standard deviation of their sizes over the mean."""


@dataclass(frozen=True, kw_only=True)
class WorkerThreads:
    """Threads of a worker, by library."""

    torch: Count | None = None
    """Of torch."""
    opencv: Quantity | None = None
    """Of OpenCV; it may say -1."""


@dataclass(frozen=True, kw_only=True)
class OpenHandle:
    """What was open when workers were forked, and is used there."""

    path: str | None = None
    """Where it is in the dataset."""
    type: str | None = None
    """What it is."""


@dataclass(frozen=True, kw_only=True)
class LoaderFacts:
    """Facts about the loader and its dataset that no throughput shows."""

    start_method: str | None = None
    """How the workers are started; None without workers."""
    fetches_batches: bool | None = None
    """The dataset has `__getitems__`."""
    iterable: bool | None = None
    """The dataset is a stream."""
    pin_thread: bool | None = None
    """A thread pins batches."""
    mentions_non_blocking: bool | None = None
    """The code of `to_device` does."""
    tokenizers: tuple[str, ...] = ()
    """Of Hugging Face, that the dataset or collation holds."""
    transform_modules: Mapping[str, str] = field(default_factory=dict)
    """The package of each transform, by its path."""
    dataset_pickle_bytes: Quantity | None = None
    """What the start of a worker sends; None where nothing is sent."""
    dataset_pickle_s: Quantity | None = None
    """The time that pickling takes."""
    dataset_pickle_complete: bool | None = left_out()
    """Pickling came to its end within its limits."""
    dataset_pickle_failure: str | None = left_out()
    """Why the dataset cannot be pickled."""
    python_objects: Quantity | None = None
    """Objects of Python's that the dataset holds."""
    python_object_bytes: Quantity | None = None
    """What they take."""
    python_objects_largest: str | None = None
    """Where most of them are."""
    worker_threads: WorkerThreads = null(WorkerThreads())
    """Threads of a worker."""
    omp_num_threads: str | None = None
    """The environment variable in the workers."""
    tokenizers_parallelism: str | None = None
    """The environment variable in the workers."""
    open_handles: tuple[OpenHandle, ...] = ()
    """What was open when workers were forked, and is used there."""
    decoded_pixels_per_sample: Quantity | None = None
    """Pixels of images as decoded."""
    used_pixels_per_sample: Quantity | None = None
    """Pixels of them that the job uses."""
    loaded_bytes_per_sample: Quantity | None = None
    """What loading returns."""
    shared_memory_bytes_needed: Quantity | None = None
    """What the batches take when the workers' queue is full."""
    descriptors_needed: Quantity | None = None
    """The same in open files."""
    descriptor_limit: Quantity | None = None
    """Files that a process may have open."""
    sharing_strategy: str | None = None
    """How tensors are shared between processes."""


# --- a batch ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TensorSeen:
    """A tensor of a batch."""

    path: str | None = None
    """Where in the batch, such as `[0]`; empty for the batch itself."""
    shape: tuple[Count, ...] = ()
    """Its lengths."""
    dtype: str | None = None
    """Its type."""
    bytes: Quantity | None = None
    """What it takes."""


@dataclass(frozen=True, kw_only=True)
class Saving:
    """What a tensor could travel as."""

    id: str | None = None
    """Which kind of saving."""
    path: str | None = None
    """Where in the batch."""
    what: str | None = None
    """What was seen, for people."""
    how: str | None = None
    """A line of code."""
    bytes_saved: Quantity | None = None
    """Of one batch."""


@dataclass(frozen=True, kw_only=True)
class Payload:
    """What one batch holds."""

    bytes: Quantity | None = None
    """All of its tensors."""
    tensor_count: Quantity | None = None
    """How many these are."""
    tensors: tuple[TensorSeen, ...] = ()
    """The first of them."""
    objects: Quantity | None = None
    """What is no tensor."""
    savings: tuple[Saving, ...] = ()
    """What could travel in fewer bytes, the largest saving first."""
    unread: tuple[str, ...] | None = None
    """Paths of the tensors that the train step never reads; None where that is not known."""
    unread_bytes: Quantity | None = None
    """What these take."""


# --- reading ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReadsOfExperiment:
    """What an experiment read for each sample."""

    name: str | None = None
    """The experiment."""
    asked_bytes_per_sample: Quantity | None = None
    """Bytes that processes asked for."""
    storage_bytes_per_sample: Quantity | None = None
    """Those of them that came from storage."""
    calls_per_sample: Quantity | None = None
    """Calls that asked."""
    source: str | None = None
    """Where from: `page cache`, `disk`, `unknown` or `none`."""


@dataclass(frozen=True, kw_only=True)
class Reads:
    """Where data was read from."""

    requested_bytes_per_sample: Quantity | None = None
    """Bytes that processes asked for, in all experiments that load."""
    storage_bytes_per_sample: Quantity | None = None
    """Those of them that came from storage."""
    label: str | None = None
    """`cold`, `warm` or `none`."""
    experiments: tuple[ReadsOfExperiment, ...] = ()
    """Each experiment by itself."""
    missing: tuple[str, ...] = ()
    """A line for each thing that the counters do not show."""


@dataclass(frozen=True, kw_only=True)
class Cold:
    """The experiment with files dropped from memory."""

    verified: bool | None = None
    """The files were really out of memory."""
    files: Quantity | None = None
    """Files that were dropped."""
    bytes: Quantity | None = None
    """What they hold."""
    reason: str | None = None
    """Why it does not count; None where it does."""
    batches: Count | None = left_out()
    """Batches of the pool."""
    samples: Quantity | None = left_out()
    """Samples of the pool."""
    resident_share: Quantity | None = left_out()
    """The largest part of the pages that stayed in memory."""


# --- utilisation --------------------------------------------------------------------------------------------


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
    """Part of the time in which any kernel ran."""
    memory_bytes: Quantity | None = None
    """The most that was in use."""
    pcie_bytes_per_s: Quantity | None = None
    """To the device and back."""
    sm_clock_hz: Quantity | None = None
    """Its clock."""
    max_sm_clock_hz: Quantity | None = None
    """The highest clock that it has."""
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
    """How many times was looked."""
    cores_busy: Quantity | None = None
    """Cores that anybody kept busy."""
    cores_main: Quantity | None = None
    """Cores that the main process kept busy."""
    cores_workers: Quantity | None = None
    """Cores that the workers kept busy."""
    cores_other: Quantity | None = None
    """Cores that others kept busy."""
    runnable_per_core: Quantity | None = None
    """Threads that ran or could."""
    throttled_share: Quantity | None = None
    """Part of the quota's periods in which the job was stopped."""
    disk_read_bytes_per_s: Quantity | None = None
    """Read from disks."""
    disk_write_bytes_per_s: Quantity | None = None
    """Written to disks."""
    disk_busy_share: Quantity | None = None
    """Part of the time in which the busiest disk was."""
    disk_requests_in_flight: Quantity | None = left_out()
    """Of that disk, at once; None where no disk is known."""
    disk_rotational: bool | None = left_out()
    """That disk turns; None where no disk is known."""
    network_bytes_per_s: Quantity | None = None
    """Received and sent."""
    gpu: GpuUsage = null(GpuUsage())
    """The device; nothing without an NVIDIA device that can be watched."""


@dataclass(frozen=True, kw_only=True)
class MainProcess:
    """The main process."""

    threads: Count | None = None
    """Its threads."""


@dataclass(frozen=True, kw_only=True)
class WorkersUsage:
    """The workers while blocks were measured."""

    count: Count | None = None
    """How many."""
    threads: Count | None = None
    """Of each."""
    private_bytes: Quantity | None = None
    """Memory of their own, of all together."""
    shared_bytes: Quantity | None = None
    """Memory that they share."""
    private_growth_bytes_per_s: Quantity | None = None
    """How fast the former grows."""
    private_growth_error_bytes_per_s: Quantity | None = None
    """Standard error of that."""
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
    """What it holds."""
    peak_used_bytes: Quantity | None = None
    """The most that was in use."""


@dataclass(frozen=True, kw_only=True)
class BlocksOverTime:
    """A block, or some neighbours, in a series over time."""

    begin_s: Quantity | None = None
    """From the beginning of the first block."""
    end_s: Quantity | None = None
    """From the beginning of the first block."""
    name: str | None = None
    """The experiment; None where several share the row."""
    mode: str | None = None
    """As in `ExperimentUsage`."""
    cores_busy: Quantity | None = None
    """Cores that anybody kept busy."""
    cores_job: Quantity | None = None
    """Cores that the job kept busy."""
    disk_read_bytes_per_s: Quantity | None = None
    """Read from disks."""
    gpu_busy_share: Quantity | None = None
    """Part of the time in which any kernel ran."""


@dataclass(frozen=True, kw_only=True)
class MemoryOverTime:
    """Memory of the workers at one moment."""

    time_s: Quantity | None = None
    """From the beginning of the first block."""
    private_bytes: Quantity | None = None
    """Of their own."""
    shared_bytes: Quantity | None = None
    """Shared."""


@dataclass(frozen=True, kw_only=True)
class UsageSeries:
    """What was used over time."""

    blocks_per_row: Count | None = None
    """Neighbours that share a row."""
    blocks: Annotated[tuple[BlocksOverTime, ...], Meta(max_length=MOST_ROWS)] = ()
    """In the order in which they were measured."""
    memory: Annotated[tuple[MemoryOverTime, ...], Meta(max_length=MOST_ROWS)] = ()
    """Of the workers."""


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    """What the machine and the processes of the job did while blocks were measured."""

    interval_s: Quantity | None = None
    """Time between two looks."""
    samples: Quantity | None = None
    """How many times was looked."""
    cores: Cores = null(Cores())
    """Cores that the job may use."""
    experiments: tuple[ExperimentUsage, ...] = ()
    """Each experiment by itself."""
    main: MainProcess = null(MainProcess())
    """The main process."""
    workers: WorkersUsage = null(WorkersUsage())
    """The workers."""
    shared_memory: SharedMemory = null(SharedMemory())
    """`/dev/shm`."""
    gpu_other_processes: Count | None = None
    """Other processes that use the device."""
    series: UsageSeries = left_out(UsageSeries())
    """The same over time."""
    missing: tuple[str, ...] = ()
    """Sentences on what could not be seen."""


# --- the train step -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TrainingSeen:
    """The train step while blocks were measured."""

    put_back: Quantity | None = left_out()
    """How often weights and optimizer went back at the beginning of a round."""
    put_back_skipped: Quantity | None = left_out()
    """How often that was left out for the time it takes."""
    blocks: Count | None = None
    """Blocks with fresh batches."""
    distinct_shapes: Count | None = None
    """Of all batches; None on a CPU, where shapes are not looked at."""
    shapes_new_in_blocks: Quantity | None = None
    """Shapes that were met for the first time in these blocks."""
    compiled_in_blocks: Quantity | None = None
    """Graphs compiled in them."""
    allocations_in_blocks: Quantity | None = None
    """Pieces of memory taken from the device in them."""
    allocation_retries_in_blocks: Quantity | None = None
    """Times that the allocator found none left."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts about the model, the optimizer and torch's settings."""

    parameters: Quantity | None = None
    """How many."""
    parameter_bytes: Quantity | None = None
    """What they take."""
    dtypes: Mapping[str, Quantity] | None = None
    """Parameters of each type."""
    compiled: bool | None = None
    """By `torch.compile`."""
    own_train_step: bool | None = None
    """A `train_step` was given."""
    computed_dtypes: Mapping[str, Quantity] | None = None
    """Matrix products and convolutions of the traced steps, by type."""
    autocast: bool | None = None
    """A model of `float32` computed in a smaller type."""
    optimizer: str | None = None
    """Its class."""
    optimizer_fused: bool | None = None
    """Its implementation is."""
    optimizer_foreach: bool | None = None
    """Its implementation is."""
    convolutions: Quantity | None = None
    """Layers."""
    channels_last: bool | None = None
    """Images are in that layout."""
    fixed_shapes: bool | None = None
    """All batches seen have one shape."""
    cudnn_benchmark: bool | None = None
    """Torch's setting."""
    matmul_precision: str | None = None
    """Torch's setting."""
    peak_device_bytes: Quantity | None = None
    """The most that tensors took of a CUDA device."""
    device_bytes: Quantity | None = None
    """Its memory."""
    device_free_bytes: Quantity | None = None
    """What of it is free."""
    device_capability: tuple[Count, Count] | None = None
    """Major and minor number of an NVIDIA device."""
    cpu_bfloat16: bool | None = None
    """The processor computes in it."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """What an operator takes in the traced steps."""

    name: str | None = None
    """As torch calls it."""
    self_s_per_step: Quantity | None = None
    """On the host, by itself."""
    device_s_per_step: Quantity | None = None
    """On the device; None without one."""
    calls_per_step: Quantity | None = None
    """How often it is called."""
    share: Quantity | None = None
    """Its part of the own time of all operators."""


@dataclass(frozen=True, kw_only=True)
class Synchronisation:
    """What makes the host wait for the device within a step."""

    name: str | None = None
    """What asked for it, and the driver's call."""
    calls_per_step: Quantity | None = None
    """How often."""
    seconds_per_step: Quantity | None = None
    """How long it waits."""
    idle_after_s_per_step: Quantity | None = None
    """How long the device has nothing to do after that."""


@dataclass(frozen=True, kw_only=True)
class OptimizerPart:
    """A part of the step that torch annotates, such as that of the optimizer."""

    name: str | None = None
    """The class of the optimizer."""
    host_s_per_step: Quantity | None = None
    """On the host."""
    device_s_per_step: Quantity | None = None
    """On the device; None without one."""
    operators_per_step: Quantity | None = None
    """Operators that it calls."""
    fused: bool | None = None
    """It calls fused ones."""
    foreach: bool | None = None
    """It calls those that take lists."""


@dataclass(frozen=True, kw_only=True)
class TracedSteps:
    """Some steps of one experiment under torch's profiler."""

    steps: Count | None = None
    """How many."""
    seconds_per_step: Quantity | None = None
    """Under the profiler."""
    device_busy_share: Quantity | None = None
    """Part of that in which the device computes; None without one."""
    device_busy_s_per_step: Quantity | None = None
    """The same in seconds."""
    top: tuple[Operator, ...] = ()
    """The costliest operators."""
    synchronisations: tuple[Synchronisation, ...] = ()
    """What makes the host wait for the device."""
    launches_per_step: Quantity | None = None
    """Kernels that the host launches."""
    mean_kernel_s: Quantity | None = None
    """What a kernel takes."""
    operators_per_step: Quantity | None = None
    """Operators that call no other."""
    matrix_s_per_step: Quantity | None = None
    """Matrix products."""
    convolution_s_per_step: Quantity | None = None
    """Convolutions."""
    layout_s_per_step: Quantity | None = None
    """Changes of the layout of images."""
    optimizer: OptimizerPart = null(OptimizerPart())
    """Its `step`."""
    clearing: OptimizerPart = null(OptimizerPart())
    """Its `zero_grad`."""


@dataclass(frozen=True, kw_only=True)
class Traces:
    """Traced steps, by experiment."""

    device: TracedSteps = left_out(TracedSteps())
    """With the input on the device."""
    raw: TracedSteps = left_out(TracedSteps())
    """The job as it is."""


# --- the workers' code --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FunctionSeen:
    """A function of the workers' code, and what it takes by itself."""

    function: str | None = None
    """Its name."""
    file: str | None = None
    """Where it is; no home directory shows."""
    line: Count | None = None
    """Where it begins; None for native code."""
    own_share: Quantity | None = None
    """Its part of all samples of the user's code."""
    waiting_share: Quantity | None = None
    """The part of its own time in which nothing was computed."""
    stage: str | None = None
    """The stage that it works for; None where the stacks do not tell."""


@dataclass(frozen=True, kw_only=True)
class FrameSeen:
    """A function that stacks mention by its position."""

    function: str | None = None
    """Its name."""
    file: str | None = None
    """Where it is."""
    line: Count | None = None
    """Where it begins; None for native code."""


@dataclass(frozen=True, kw_only=True)
class StackSeen:
    """A stack, as positions in the list of functions."""

    frames: Positions | None = None
    """From the outermost inwards."""
    stage: str | None = None
    """The stage at work."""
    samples: Amount | None = None
    """How often it was seen, computing or waiting."""
    computing: Amount | None = None
    """How often it was seen computing; None where that is not known."""


@dataclass(frozen=True, kw_only=True)
class StacksKept:
    """The stacks of all processes together, the heaviest."""

    frames: Annotated[tuple[FrameSeen, ...], Meta(max_length=MOST_ROWS)] = ()
    """Each function once."""
    seen: Annotated[tuple[StackSeen, ...], Meta(max_length=MOST_ROWS)] = ()
    """The stacks."""
    left_out_samples: Amount | None = None
    """Samples of what was seen too seldom to be kept."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a profiler saw of the workers' code."""

    sampler: str | None = None
    """`py-spy` or `in-process`."""
    rate_hz: Quantity | None = None
    """How often it looked."""
    seconds: Quantity | None = None
    """How long each process was sampled."""
    samples: Quantity | None = None
    """Samples of the user's code in all processes."""
    processes: Count | None = None
    """How many."""
    in_workers: bool | None = None
    """Not in the main process."""
    functions: tuple[FunctionSeen, ...] = ()
    """Those with the most own time first."""
    stacks: StacksKept = left_out(StacksKept())
    """The stacks that were kept."""


# --- the whole ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CostsTogether:
    """How the costs of the stages add up."""

    all_s_per_batch: Quantity | None = None
    """The loader alone, which is its workers where there are some."""
    sum_s_per_batch: Interval | None = None
    """Costs of the stages that were left out of it."""
    rest_s_per_batch: Interval | None = None
    """What is no single stage's."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that was seen beside the blocks."""

    first_batch_s: Quantity | None = left_out()
    """Time to the first batch of an epoch."""
    cache_bytes_wanted: Count | None = left_out()
    """What the caches would need for everything to be measured; only where they lack memory."""
    recorded_batches: RecordedBatches = left_out(RecordedBatches())
    """Batches that were recorded to be served again."""
    epoch_gap: EpochGap = left_out(EpochGap())
    """How long the job waits for the first batch of an epoch."""
    receiving_s_per_batch: Quantity | None = None
    """What the main process takes to receive a batch in which there is nothing; None without workers."""
    payload: Payload = left_out(Payload())
    """What one batch holds."""
    handoff: Handoff = left_out(Handoff())
    """What handing over a batch takes, of a job without workers."""
    workers_tried: WorkersTried = left_out(WorkersTried())
    """What workers would bring a job that has none."""
    transforms: tuple[TransformSeen, ...] = left_out(())
    """Single transforms, in the order in which they are kept."""
    transforms_note: str | None = left_out()
    """Why they do not add up to their stage."""
    core_wait_per_cpu_s: Quantity | None = left_out()
    """Seconds that workers waited for a core, for each second of CPU time."""
    loader: LoaderFacts = left_out(LoaderFacts())
    """Facts about loader and dataset."""
    other_load_cores: Quantity | None = left_out()
    """Cores that other processes kept busy, or other virtual machines."""
    stolen_share: Quantity | None = left_out()
    """Of the time of the job's cores, what the hypervisor gave to others."""
    blocks_repeated: Count | None = left_out()
    """Blocks that were measured again, because far more than usual was stolen during them."""
    wait_s: Waits = left_out(Waits())
    """How long the main process waits for a batch."""
    stalls: Stalls = left_out(Stalls())
    """Waits that are far over the usual one."""
    trace: Traces = left_out(Traces())
    """Traced steps."""
    model: ModelFacts = left_out(ModelFacts())
    """Facts about the model, the optimizer and torch's settings."""
    loop_s_per_batch: Quantity | None = None
    """What the loop of the timed blocks takes beside the train step; None on a device, which works on meanwhile."""
    reads: Reads = null(Reads())
    """Where data was read from."""
    utilisation: Utilisation = null(Utilisation())
    """What was used while blocks were measured."""
    training: TrainingSeen = left_out(TrainingSeen())
    """The train step while blocks were measured."""
    sampler_s_per_batch: Quantity | None = left_out()
    """What the sampler takes in the main process to choose the samples of a batch."""
    cold: Cold = left_out(Cold())
    """The experiment with files dropped from memory."""
    profile: Profile = left_out(Profile())
    """What a profiler saw of the workers' code."""
    resolution_s_per_batch: Quantity | None = left_out()
    """Cost of a stage up to which nothing is said of it."""
    serving_s_per_batch: Interval | None = left_out()
    """What it takes to serve from recordings in the place of stages."""
    costs_together: CostsTogether = left_out(CostsTogether())
    """How the costs of the stages add up."""
    gpu_hour_price: Quantity | None = left_out()
    """What was given as the price of a GPU hour."""
    lost_per_gpu_hour: Interval | None = left_out()
    """What of it is lost."""
