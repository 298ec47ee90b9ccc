"""What was measured besides the blocks: the evidence, written by the measuring, read by analysis and reports.

Frozen dataclasses like all records, and no `msgspec.Struct`, which writes either all of its defaults or none: here some
keys are null where nothing is known, and others missing.

What is unknown is None, or a part in which nothing is known, so that a reader goes straight to the number:
`evidence.cold.files`. In JSON it is null, unless its field is `left_out`. A null and a missing key are the same to a
reader, and keys of a later version are ignored. `docs/reference/json.md` describes every key.
"""

from __future__ import annotations

from dataclasses import dataclass

from bottleneck.results.evidence.fields import left_out, null
from bottleneck.results.evidence.io import Cold, Reads, ReadsOfExperiment
from bottleneck.results.evidence.loader import (
    LoaderFacts,
    OpenHandle,
    RecordedBatches,
    SourcePlace,
    TransformSeen,
    WorkerThreads,
)
from bottleneck.results.evidence.payload import Payload, Saving, TensorSeen
from bottleneck.results.evidence.profile import FunctionSeen, Profile
from bottleneck.results.evidence.ranks import Contention, RanksTogether, Straggler, Sync
from bottleneck.results.evidence.step import (
    LoopSeen,
    ModelFacts,
    Operator,
    Synchronisation,
    TracedSteps,
    Traces,
    TrainingSeen,
)
from bottleneck.results.evidence.usage import (
    Cores,
    ExperimentUsage,
    GpuUsage,
    SharedMemory,
    Utilisation,
    WorkersUsage,
)
from bottleneck.results.evidence.waits import EpochGap, Stalls, Waits
from bottleneck.results.values import Count, Interval, Quantity


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
    """All that was measured besides the blocks."""

    first_batch_s: Quantity | None = left_out()
    cache_bytes_wanted: Count | None = left_out()
    """What the caches would need for everything to be measured; only where they lack memory."""
    recorded_batches: RecordedBatches = left_out(RecordedBatches())
    epoch_gap: EpochGap = left_out(EpochGap())
    receiving_s_per_batch: Quantity | None = None
    """What the main process takes to receive a batch in which there is nothing; None without workers."""
    payload: Payload = left_out(Payload())
    transforms: tuple[TransformSeen, ...] = left_out(())
    """Single transforms, in the order in which they are kept."""
    transforms_note: str | None = left_out()
    source: tuple[SourcePlace, ...] = left_out(())
    """Places in the user's source that advice may be about."""
    core_wait_per_cpu_s: Quantity | None = left_out()
    """Seconds that workers waited for a core, for each second of CPU time."""
    loader: LoaderFacts = left_out(LoaderFacts())
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
