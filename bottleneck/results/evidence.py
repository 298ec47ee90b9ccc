"""What was measured besides the blocks: the evidence, written by the measuring, read by analysis and reports.

Frozen dataclasses like all records, and no `msgspec.Struct`, which writes either all of its defaults or none: here some
keys are null where nothing is known, and others missing.

What is unknown is None, or a part in which nothing is known, so that a reader goes straight to the number:
`evidence.cold.files`. In JSON it is null, unless its field is `left_out`. A null and a missing key are the same to a
reader, and keys of a later version are ignored. `docs/reference/json.md` describes every key.
"""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.facts import (
    AmplifiedSeen,
    BetweenEpochs,
    ClockedBatches,
    CollectionsSeen,
    DeviceTime,
    EpochGap,
    FunctionSeen,
    LineSeen,
    LoadedBatches,
    LoaderFacts,
    LoopSeen,
    ModelFacts,
    OpenHandle,
    Operator,
    OtherLoader,
    Payload,
    Profile,
    RecordedBatches,
    RepeatedSeen,
    SamplerSeen,
    Saving,
    SourcePlace,
    StageClock,
    Stalls,
    Synchronisation,
    TensorSeen,
    ThreadTrial,
    TracedSteps,
    Traces,
    TrainingSeen,
    TransformSeen,
    Waits,
    WorkersTrial,
    WorkersWay,
)
from bottleneck.results.values import Count, Interval, Quantity, left_out, null

# --- what was used ------------------------------------------------------------------------------------------


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


# --- where data was read from -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReadsOfExperiment:
    """What an experiment read for each sample."""

    name: str | None = None
    asked_bytes_per_sample: Quantity | None = None
    """Bytes that processes asked for, from the page cache or from storage."""
    storage_bytes_per_sample: Quantity | None = None
    calls_per_sample: Quantity | None = None
    source: str | None = None
    """`page cache`, `disk`, `unknown` or `none`."""


@dataclass(frozen=True, kw_only=True)
class Reads:
    """Where data was read from, in all experiments that load."""

    requested_bytes_per_sample: Quantity | None = None
    """Bytes that processes asked for, from the page cache or from storage."""
    storage_bytes_per_sample: Quantity | None = None
    label: str | None = None
    """`cold`, `warm` or `none`."""
    experiments: tuple[ReadsOfExperiment, ...] = ()
    missing: tuple[str, ...] = ()
    """A line for each thing that the counters do not show."""


@dataclass(frozen=True, kw_only=True)
class Cold:
    """The experiment with files dropped from memory."""

    verified: bool | None = None
    """The files were really out of memory."""
    files: Quantity | None = None
    bytes: Quantity | None = None
    reason: str | None = None
    """Why it does not count; None where it does."""
    batches: Count | None = left_out()
    samples: Quantity | None = left_out()
    resident_share: Quantity | None = left_out()


# --- many ranks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Sync:
    """What sharing gradients costs, as the job gets on without it."""

    cost_s_per_batch: Quantity | None = None
    gain_if_free: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """The rank that holds the others the most, and those that are as slow."""

    rank: Count
    host: str
    device: str
    stage: str | None = None
    """What it is slow in."""
    gain: Interval | None = None
    """The factor of throughput of the job without that: its loader free, or its step as quick as the others'."""
    ranks: tuple[Count, ...] = left_out(())
    """It and those that are as slow, where there are several."""


@dataclass(frozen=True, kw_only=True)
class Contention:
    """What ranks take from each other."""

    ratio: Interval | None = None
    """Time for a batch of the loaders alone: all at once over one by itself."""
    what: str | None = None
    """`cores`; `memory`, where the workers compute longer for the same batch, because running cores share its bandwidth
    and caches; `disk`; `network`, or the storage behind it; None where it is not known."""


@dataclass(frozen=True, kw_only=True)
class RanksTogether:
    """A job of many ranks."""

    world: Count | None = None
    """Number of ranks; None for a job of one process."""
    hosts: Count | None = None
    backend: str | None = None
    """Of the group in which gradients are shared."""
    sync: Sync = left_out(Sync())
    sync_reason: str | None = left_out()
    """Why what sharing gradients costs is not known."""
    straggler: Straggler | None = left_out()
    contention: Contention = left_out(Contention())
    other_ranks_cores: Quantity | None = left_out()
    """Cores that the other ranks of rank 0's host kept busy in the rounds."""


# --- all of it ----------------------------------------------------------------------------------------------


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
class WallClockPart:
    """A part of the wall clock of a script, for each step of its training."""

    name: str | None = None
    s_per_step: Quantity | None = None
    share: Quantity | None = None
    place: str | None = None
    """File and line of most of it; None where they are not known."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that was measured besides the blocks."""

    first_batch_s: Quantity | None = left_out()
    cache_bytes_wanted: Count | None = left_out()
    """What the caches would need for everything to be measured; only where they lack memory."""
    recorded_batches: RecordedBatches = left_out(RecordedBatches())
    loaded_batches: LoadedBatches = left_out(LoadedBatches())
    clocked_batches: ClockedBatches = left_out(ClockedBatches())
    device_time: DeviceTime = left_out(DeviceTime())
    epoch_gap: EpochGap = left_out(EpochGap())
    receiving_s_per_batch: Quantity | None = None
    """What the main process takes to receive a batch in which there is nothing; None without workers."""
    payload: Payload = left_out(Payload())
    transforms: tuple[TransformSeen, ...] = left_out(())
    """Single transforms, in the order in which they are kept."""
    transforms_note: str | None = left_out()
    lines: tuple[LineSeen, ...] = left_out(())
    """Of each stage the lines that take the most of it, the costliest first."""
    amplification: tuple[AmplifiedSeen, ...] = left_out(())
    """What is touched for a sample against what it keeps."""
    repeated: RepeatedSeen = left_out(RepeatedSeen())
    source: tuple[SourcePlace, ...] = left_out(())
    """Places in the user's source that advice may be about."""
    collections: CollectionsSeen = left_out(CollectionsSeen())
    core_wait_per_cpu_s: Quantity | None = left_out()
    """Seconds that workers waited for a core, for each second of CPU time."""
    loader: LoaderFacts = left_out(LoaderFacts())
    thread_trial: ThreadTrial = left_out(ThreadTrial())
    workers_trial: WorkersTrial = left_out(WorkersTrial())
    other_load_cores: Quantity | None = left_out()
    """Cores that other processes kept busy, or other virtual machines."""
    stolen_share: Quantity | None = left_out()
    blocks_repeated: Count | None = left_out()
    wait_s: Waits = left_out(Waits())
    stalls: Stalls = left_out(Stalls())
    trace: Traces = left_out(Traces())
    model: ModelFacts = left_out(ModelFacts())
    loop_s_per_batch: Quantity | None = None
    """What the loop of the timed blocks takes besides the train step; None on a device, which does not wait for it."""
    step_s_per_batch: Quantity | None = left_out()
    """What the train step takes within the job as it is; None on a device, which runs asynchronously."""
    reads: Reads = null(Reads())
    utilisation: Utilisation = null(Utilisation())
    training: TrainingSeen = left_out(TrainingSeen())
    loop: LoopSeen = left_out(LoopSeen())
    wall_clock: tuple[WallClockPart, ...] = left_out(())
    """Of a script, in the order in which its parts come in a step."""
    switches: tuple[str, ...] = left_out(())
    """Settings of the process that slow a training down and were on, as the code that sets them."""
    sampler: SamplerSeen = left_out(SamplerSeen())
    sampler_s_per_batch: Quantity | None = left_out()
    """What the sampler takes in the main process to choose the samples of a batch."""
    cold: Cold = left_out(Cold())
    profile: Profile = left_out(Profile())
    resolution_s_per_batch: Quantity | None = left_out()
    """The cost up to which the cost of a stage is not resolved."""
    serving_s_per_batch: Interval | None = left_out()
    """The overhead of serving recordings instead of running stages."""
    costs_together: CostsTogether = left_out(CostsTogether())
    gpu_hour_price: Quantity | None = left_out()
    lost_per_gpu_hour: Interval | None = left_out()
    ranks: RanksTogether = left_out(RanksTogether())
    """Of a job of many processes."""
