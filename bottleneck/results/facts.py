"""Observations of the job itself: its loader and dataset, a batch, the train step, waits, and a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bottleneck.results.values import Block, Count, Interval, Quantity, left_out, null

# --- the loader, its dataset and its workers ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TransformSeen:
    """Calls of a single transform."""

    stage: str | None = None
    path: str | None = None
    """Path in the dataset."""
    name: str | None = None
    calls_per_sample: Quantity | None = None
    wall_s_per_call: Quantity | None = None
    cpu_s_per_call: Quantity | None = None
    share: Quantity | None = None
    waiting_share: Quantity | None = left_out()
    output: str | None = None


@dataclass(frozen=True, kw_only=True)
class LineSeen:
    """A line of the code that makes batches, on which a stage spends time."""

    stage: str | None = None
    path: str | None = None
    """Path; relative to the working directory if inside it."""
    line: Count | None = None
    function: str | None = None
    code: str | None = None
    """Text of the line; None if the file cannot be read."""
    calls: str | None = None
    """Module and function that it calls for most of its time; None for code in C."""
    share: Quantity | None = None
    waiting_share: Quantity | None = None
    library: bool | None = None
    """True if it belongs to an installed package, and no line of the user's code is active."""


@dataclass(frozen=True, kw_only=True)
class ConstructionSeen:
    """An object that the code of batches makes again and again, with the same arguments."""

    stage: str | None = None
    name: str | None = None
    """Class of the object, or module and function that makes it."""
    path: str | None = None
    """Path of the calling line; relative to the working directory if inside it."""
    line: Count | None = None
    code: str | None = None
    """Text of the line; None if the file cannot be read."""
    share: Quantity | None = None
    seen: Count | None = None
    """Samples of the dataset, or collations, in which it was at work when a worker was looked at."""
    looked_at: Count | None = None
    """Those in which the stage was."""


@dataclass(frozen=True, kw_only=True)
class CollectionsSeen:
    """Python's garbage collections of all objects, in the processes that make batches."""

    count: Count | None = None
    """Number in all workers, while blocks with everything real were measured; None without workers."""
    share: Quantity | None = None
    """Share of that time."""
    seconds_each: Quantity | None = None
    """Duration of one collection of all objects."""
    objects: Quantity | None = None
    """Objects that a process examines."""


@dataclass(frozen=True, kw_only=True)
class SamplerSeen:
    """The sampler, which chooses the order of the samples in the main process."""

    name: str | None = None
    """Class of the sampler."""
    choices: Quantity | None = None
    """Samples from which it chooses; None if unknown."""
    draws: Quantity | None = None
    """Samples that it chooses in an epoch; None if unknown."""
    replacement: bool | None = None
    """True if it may choose a sample twice; None if unknown."""
    line: LineSeen | None = None
    """Line of the user's code that takes most of its first choice."""


@dataclass(frozen=True, kw_only=True)
class AmplifiedSeen:
    """Data that a stage reads, unpacks or decodes per sample, and the part that is kept: medians of some samples."""

    source: str | None = None
    """Kind of storage, such as `parquet`; `read`: all bytes that the worker reads."""
    stage: str | None = None
    unit: str | None = None
    """`bytes` or `frames`."""
    touched_per_sample: Quantity | None = None
    kept_per_sample: Quantity | None = None
    """Part that the caller took, or else of which the stage's output, or the sample, consists."""
    rows_per_sample: Quantity | None = left_out()
    samples: Count | None = left_out()
    opens: Count | None = left_out()
    """Number of times that files were opened for all samples together."""
    opened_files: Count | None = left_out()
    """Number of different files."""
    share: Quantity | None = left_out()
    """Share of the stage's time spent in the library."""
    opening_share: Quantity | None = left_out()
    """Share of that spent on opening."""


@dataclass(frozen=True, kw_only=True)
class RepeatedSeen:
    """Work that gives the same result for an index each time, although it is repeated."""

    samples: Count | None = None
    """Samples that were made twice, or batches of a dataset that fetches whole ones; None if none could be."""
    stages: tuple[str, ...] = ()
    """Stages that gave the same result without random numbers, in the order of execution."""
    bytes_per_sample: Quantity | None = None
    """Size of the last one's output."""
    seconds_per_sample: Quantity | None = None
    """Time of a worker up to there."""


@dataclass(frozen=True, kw_only=True)
class DistinctSeen:
    """Different data among that of samples with different indices."""

    stage: str | None = None
    """Stage that gave the data, and before which all others belong to it; None for whole samples."""
    samples: Count | None = None
    """Samples that were compared."""
    different: Count | None = None
    seen_once: Count | None = None
    """Those of the different ones that came only once, or in samples that follow each other."""
    bytes_each: Quantity | None = None


@dataclass(frozen=True, kw_only=True)
class NetworkPace:
    """Requests over the network with a number of workers, each of which makes batches as fast as it can.

    Times are means over the requests; rates are those of all workers together.
    """

    num_workers: Count | None = None
    requests: Count | None = None
    samples_per_s: Quantity | None = None
    requests_per_s: Quantity | None = None
    bytes_per_s: Quantity | None = None
    """Bytes received."""
    in_flight: Quantity | None = None
    """Requests open at once, on average."""
    first_byte_s: Quantity | None = None
    """Time from a request to the first byte of its answer."""
    transfer_s: Quantity | None = None
    """Time from there to the last byte."""
    refused: Count | None = None
    """Requests answered with status 429 or 503."""


@dataclass(frozen=True, kw_only=True)
class NetworkSeen:
    """Requests that workers send over the network for their samples, by Python's sockets."""

    stage: str | None = None
    """Stage that sends most of them."""
    requests_per_sample: Quantity | None = None
    bytes_per_sample: Quantity | None = None
    connections_per_request: Quantity | None = None
    """New connections."""
    connecting_s: Quantity | None = None
    """Time to open a connection."""
    share: Quantity | None = None
    """Share of the workers' time in which at least one request is open."""
    computing_share: Quantity | None = None
    """CPU time of the worker in that time, as a share of it."""
    job: NetworkPace = null(NetworkPace())
    """The workers of the job."""
    more: NetworkPace = null(NetworkPace())
    """More workers, in a trial; empty if not tried."""


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
class OtherLoader:
    """A loader that a script's loop iterates besides the one that was varied; times are sums over the loop's steps."""

    dataset: str | None = None
    path: str | None = None
    """File in which it is made, relative to the working directory; None if uncertain."""
    line: Count | None = None
    num_workers: Count | None = None
    persistent_workers: bool | None = None
    passes: Count | None = None
    evaluations: Count | None = None
    """Passes in which no optimizer made a step."""
    evaluating_s: Quantity | None = None
    """Time of all these passes, with the computation in them."""
    starting_s: Quantity | None = None
    """Time for making its iterators, waiting for the first batch of each, and ending the workers."""
    waiting_s: Quantity | None = None
    """Time of waiting for the other batches."""
    first_s: Quantity | None = None
    """Time of waiting for the first batch of each pass, a part of the start."""
    later_batches: Count | None = None
    """Number of the other batches."""
    loaders: Count | None = None
    """Objects over this dataset that were iterated: more than one where the loop makes it again."""
    is_training_set: bool | None = left_out()
    """It goes over the dataset that is trained on."""
    every: Count | None = left_out()
    """By the source, there is a pass in each n-th epoch only."""


@dataclass(frozen=True, kw_only=True)
class BetweenEpochs:
    """Work of a script from the end of an epoch to the beginning of the next, before the diagnosis feeds its loop."""

    ends: Count | None = None
    """Ends that were seen; 0 if an epoch was too long to wait for, None if the loop is in no other loop."""
    batches: Quantity | None = None
    """Batches of one of these epochs; this and the following are means over them."""
    seconds: Quantity | None = None
    """From the end of an epoch to the beginning of the next."""
    each_epoch_share: Quantity | None = None
    """The part of it, without evaluations, that comes in each epoch: work in each n-th epoch counts as its
    n-th part."""
    saves: Count | None = None
    """Files that were saved, in all."""
    saving_s: Quantity | None = None
    others: tuple[OtherLoader, ...] = ()
    """The loaders that were iterated then; times are sums over the ends."""
    path: str | None = None
    """The first statement between two epochs that calls anything, if no end was seen."""
    line: Count | None = None
    skip_steps: Count | None = None
    """Steps of training before measuring that would show an end, if none was seen."""


@dataclass(frozen=True, kw_only=True)
class LoopSeen:
    """Work of a script's own loop on a batch that is already on the device, in host time: means."""

    batches: Count | None = None
    until_optimizer_s: Quantity | None = None
    """Until its optimizers step, between them, and in a closure that one calls; of a batch without a step all of its
    time."""
    optimizer_s: Quantity | None = None
    after_optimizer_s: Quantity | None = None
    """Time from the last step of an optimizer until the loop requests the next batch."""
    batch_s: Quantity | None = left_out()
    """Time of all that, if the parts are unknown: the loop takes its next batch before it trains on the last one."""
    other_loaders_s: Quantity | None = None
    """Time of waiting for other loaders in all that, which are not varied."""
    restarts: Count | None = None
    """Passes before the diagnosis that started workers for a single batch each; None unless all did."""
    restarting_step_s: Quantity | None = None
    """Shortest time from the beginning of one of these passes to that of the next."""
    steps: Count | None = None
    """Batches of all experiments that it got, over which the following sums extend."""
    others: tuple[OtherLoader, ...] = ()
    saves: Count | None = None
    """Number of files that it saved."""
    saving_s: Quantity | None = None
    input_s: Quantity | None = None
    """Time per batch, from the batch to the first call of the model, in some steps outside of the timed blocks."""
    watched_s: Quantity | None = None
    """Duration of each of these steps."""
    after_device_s: Quantity | None = None
    """Duration of each of them after the device had done the optimizer's step."""
    hooked: Count | None = None
    """Modules of the model with hooks that are not part of it."""
    hooks_s: Quantity | None = None
    """Time of these hooks in each step."""
    lines: tuple[LineSeen, ...] = ()
    """The costliest lines of a part of these steps, which is their `stage`: `input`, `step` or `after`. Of what comes
    between two epochs they are statements: of evaluations (`evaluating`), and of all else (`between`)."""
    between: BetweenEpochs = left_out(BetweenEpochs())


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
