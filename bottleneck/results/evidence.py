"""Evidence: everything measured besides the blocks, written by measuring, read by analysis and reports.

Frozen dataclasses like all records, not `msgspec.Struct`, which writes either all of its defaults or none: here some
keys are null if nothing is known, and others missing.

Unknown values are None, or a part in which nothing is known, so that a reader can use nested attributes directly:
`evidence.cold.files`. In JSON it is null, unless its field is `left_out`. A null and a missing key are the same to a
reader, and keys of a later version are ignored. `docs/reference/json.md` describes every key.
"""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.facts import (
    ClockedBatches,
    DeviceTime,
    EpochGap,
    FunctionSeen,
    LoadedBatches,
    LoaderFacts,
    ModelFacts,
    OpenHandle,
    Operator,
    PackableSeen,
    Payload,
    PickledSeen,
    Profile,
    RecordedBatches,
    Saving,
    SnapshotsSeen,
    SourcePlace,
    StageClock,
    Stalls,
    Synchronisation,
    TensorSeen,
    ThreadTrial,
    TracedSteps,
    Traces,
    TrainingSeen,
    Waits,
    WorkersTrial,
    WorkersWay,
)
from bottleneck.results.loop import (
    BetweenEpochs,
    LoopSeen,
    OtherLoader,
)
from bottleneck.results.samples import (
    AmplifiedSeen,
    CollectionsSeen,
    ConstructionSeen,
    DistinctSeen,
    LineSeen,
    NetworkPace,
    NetworkSeen,
    RepeatedSeen,
    SamplerSeen,
    TransformSeen,
)
from bottleneck.results.starting import Starting, StartingLine, StartingPart
from bottleneck.results.values import Count, Interval, Quantity, left_out, null

# --- what was used ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cores:
    """Cores available to the job."""

    usable: Quantity | None = None
    """Number after affinity and quota; need not be whole."""
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
    """Resources used while the blocks of an experiment were measured."""

    name: str | None = None
    """Experiment, or the stage that was left out."""
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
    """Simultaneous requests of the busiest disk; None if no disk is known."""
    disk_rotational: bool | None = left_out()
    """True if the busiest disk is rotational; None if no disk is known."""
    network_bytes_per_s: Quantity | None = None
    gpu: GpuUsage = null(GpuUsage())
    """Empty without an NVIDIA device that can be monitored."""


@dataclass(frozen=True, kw_only=True)
class WorkersUsage:
    """The workers while blocks were measured."""

    count: Count | None = None
    threads: Count | None = None
    private_bytes: Quantity | None = None
    cores_busy: tuple[Quantity, ...] = ()
    """Cores used by each worker in the original job."""
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
    """Activity of the machine and of the job's processes while blocks were measured."""

    cores: Cores = null(Cores())
    experiments: tuple[ExperimentUsage, ...] = ()
    workers: WorkersUsage = null(WorkersUsage())
    shared_memory: SharedMemory = null(SharedMemory())
    gpu_other_processes: Count | None = None
    missing: tuple[str, ...] = ()


# --- sources of data ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReadsOfExperiment:
    """Bytes that an experiment read per sample."""

    name: str | None = None
    asked_bytes_per_sample: Quantity | None = None
    """Bytes that processes requested, from the page cache or from storage."""
    storage_bytes_per_sample: Quantity | None = None
    calls_per_sample: Quantity | None = None
    source: str | None = None
    """`page cache`, `disk`, `unknown` or `none`."""


@dataclass(frozen=True, kw_only=True)
class Reads:
    """Sources of data in all experiments that load."""

    requested_bytes_per_sample: Quantity | None = None
    """Bytes that processes requested, from the page cache or from storage."""
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
    """True if the files were really out of memory."""
    files: Quantity | None = None
    bytes: Quantity | None = None
    reason: str | None = None
    """Reason for not counting; None if it counts."""
    batches: Count | None = left_out()
    samples: Quantity | None = left_out()
    resident_share: Quantity | None = left_out()


# --- many ranks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Sync:
    """Cost of sharing gradients, from the job without it."""

    cost_s_per_batch: Quantity | None = None
    gain_if_free: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """The rank that slows the others the most, and those that are equally slow."""

    rank: Count
    host: str
    device: str
    stage: str | None = None
    """Stage in which it is slow."""
    gain: Interval | None = None
    """Factor of throughput with its loader free, or with its step as fast as the others'."""
    ranks: tuple[Count, ...] = left_out(())
    """It and those that are equally slow, if there are several."""


@dataclass(frozen=True, kw_only=True)
class Contention:
    """Contention between ranks."""

    ratio: Interval | None = None
    """Time per batch of the loaders alone: all at once over one at a time."""
    what: str | None = None
    """`cores`; `memory`, if workers compute longer for the same batch, because running cores share its bandwidth and
    caches; `disk`; `network`, or the storage behind it; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class RanksTogether:
    """A job of many ranks."""

    world: Count | None = None
    """Number of ranks; None for a job of one process."""
    hosts: Count | None = None
    backend: str | None = None
    """Backend of the group in which gradients are shared."""
    sync: Sync = left_out(Sync())
    sync_reason: str | None = left_out()
    """Reason if the cost of sharing gradients is unknown."""
    straggler: Straggler | None = left_out()
    contention: Contention = left_out(Contention())
    other_ranks_cores: Quantity | None = left_out()
    """Cores that the other ranks of rank 0's host kept busy in the rounds."""


# --- all of it ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CostsTogether:
    """Sum of the costs of the stages."""

    all_s_per_batch: Quantity | None = None
    """Cost of the loader alone, or of its workers if there are any."""
    sum_s_per_batch: Interval | None = None
    """Sum of the costs of the stages left out one by one."""
    rest_s_per_batch: Interval | None = None
    """Rest that belongs to no single stage."""


@dataclass(frozen=True, kw_only=True)
class WallClockPart:
    """A part of a script's wall-clock time per training step."""

    name: str | None = None
    s_per_step: Quantity | None = None
    share: Quantity | None = None
    place: str | None = None
    """File and line of most of it; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything measured besides the blocks."""

    starting: Starting = left_out(Starting())
    first_batch_s: Quantity | None = left_out()
    cache_bytes_wanted: Count | None = left_out()
    """Memory that the caches would need to measure everything; only if they lack memory."""
    recorded_batches: RecordedBatches = left_out(RecordedBatches())
    loaded_batches: LoadedBatches = left_out(LoadedBatches())
    clocked_batches: ClockedBatches = left_out(ClockedBatches())
    device_time: DeviceTime = left_out(DeviceTime())
    epoch_gap: EpochGap = left_out(EpochGap())
    receiving_s_per_batch: Quantity | None = None
    """Time in which the main process receives an empty batch; None without workers."""
    payload: Payload = left_out(Payload())
    snapshots: SnapshotsSeen = left_out(SnapshotsSeen())
    transforms: tuple[TransformSeen, ...] = left_out(())
    """Single transforms, in the order in which they are kept."""
    transforms_note: str | None = left_out()
    lines: tuple[LineSeen, ...] = left_out(())
    """Most expensive lines of each stage, the most expensive first."""
    constructions: tuple[ConstructionSeen, ...] = left_out(())
    """Objects that are made again and again, the most expensive of each stage first."""
    amplification: tuple[AmplifiedSeen, ...] = left_out(())
    """Data touched for a sample and data kept."""
    repeated: RepeatedSeen = left_out(RepeatedSeen())
    distinct: DistinctSeen = left_out(DistinctSeen())
    network: NetworkSeen = left_out(NetworkSeen())
    """Requests over the network for samples."""
    source: tuple[SourcePlace, ...] = left_out(())
    """Places in the user's source that advice may concern."""
    collections: CollectionsSeen = left_out(CollectionsSeen())
    core_wait_per_cpu_s: Quantity | None = left_out()
    """Seconds in which workers waited for a core per second of CPU time."""
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
    """Time of the timed blocks' loop besides the train step; None on a device, which does not wait for it."""
    step_s_per_batch: Quantity | None = left_out()
    """Time of the train step within the original job; None on a device, which runs asynchronously."""
    reads: Reads = null(Reads())
    utilisation: Utilisation = null(Utilisation())
    training: TrainingSeen = left_out(TrainingSeen())
    loop: LoopSeen = left_out(LoopSeen())
    wall_clock: tuple[WallClockPart, ...] = left_out(())
    """Parts of a script's wall-clock time, in the order of a step."""
    switches: tuple[str, ...] = left_out(())
    """Process-wide settings that slow training down and were on, as the code that sets them."""
    sampler: SamplerSeen = left_out(SamplerSeen())
    sampler_s_per_batch: Quantity | None = left_out()
    """Time of the sampler in the main process to choose the samples of a batch."""
    cold: Cold = left_out(Cold())
    profile: Profile = left_out(Profile())
    resolution_s_per_batch: Quantity | None = left_out()
    """Smallest cost of a stage that is resolved."""
    serving_s_per_batch: Interval | None = left_out()
    """Replay overhead: serving recordings instead of running stages."""
    costs_together: CostsTogether = left_out(CostsTogether())
    gpu_hour_price: Quantity | None = left_out()
    lost_per_gpu_hour: Interval | None = left_out()
    ranks: RanksTogether = left_out(RanksTogether())
    """Ranks of a job of many processes."""
