"""Records of one diagnosis: the measured blocks, and what the analysis derived from them.

All numbers are in SI units and say so in their names. Records are immutable; the analysis makes new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bottleneck.results.evidence import Evidence
from bottleneck.results.names import COLD, COMPUTE, RAW
from bottleneck.results.values import LARGEST, Amount, Count, left_out
from bottleneck.results.values import Block as Block  # noqa: PLC0414  part of the records
from bottleneck.results.values import Interval as Interval  # noqa: PLC0414
from bottleneck.results.values import Rate as Rate  # noqa: PLC0414
from bottleneck.results.values import blocks_of as blocks_of  # noqa: PLC0414

# --- ranks of a job -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankExperiment:
    """Time per batch on this rank in one experiment: the mean over its blocks."""

    name: str
    coupled_s_per_batch: Amount | None = None
    drained_s_per_batch: Amount | None = None
    coupled: tuple[Block, ...] = left_out(())
    """Kept for a few ranks only, because a result of a thousand ranks could otherwise not be read."""
    drained: tuple[Block, ...] = left_out(())


@dataclass(frozen=True)
class Rank:
    """One process of the job."""

    rank: Count
    host: str
    device: str
    local_rank: Count | None = None
    cores: Count | None = None
    """Cores that it may use; ranks of one host may share them."""
    cores_of_host: Count | None = None
    """Cores that the ranks of its host may use together."""
    num_workers: Count | None = None
    samples_per_epoch: Count | None = None
    """None if its epoch has no known length."""
    experiments: tuple[RankExperiment, ...] = ()
    wait_s_per_batch: Amount | None = None
    """Time in which its loop waits for its loader in the original job."""
    step_s_per_batch: Amount | None = None
    """The rest of its step in the original job, including waits for other ranks."""
    alone_s_per_batch: Amount | None = None
    """Time per batch of its loader without a train step, while the loaders of other ranks rest."""
    unshared_step_s_per_batch: Amount | None = None
    """Time of its train step for a batch on the device, without sharing gradients, and so without waiting for ranks."""
    stage: str | None = None
    """Most expensive stage on this rank."""
    held: Interval | None = None
    """Factor of throughput of the job with this rank's loader free and the others' running; None if that was not
    tried."""

    def without_blocks(self) -> Rank:
        """Return the rank without the blocks of its experiments."""
        return replace(self, experiments=tuple(replace(found, coupled=(), drained=()) for found in self.experiments))


# --- trials -----------------------------------------------------------------------------------------------

TrialName = Literal[
    "device", "device-unshared", "raw", "raw-unshared", "raw-freed", "raw-held", "loaders", "loader-alone"
]
"""Batches cached on the device, and the original job, both also without sharing gradients; the job with the loaders of
some ranks free, and with those of all others free; all loaders at once, and one of them while the others rest."""


@dataclass(frozen=True)
class RankTrial:
    """Blocks of one rank in a trial."""

    name: TrialName
    rank: Count
    blocks: tuple[Block, ...]
    cpu_s: Amount | None = None
    """CPU time of the rank's processes in these blocks; None if not counted."""
    network_bytes: Amount | None = None
    """Bytes that its host sent and received in these blocks."""


@dataclass(frozen=True)
class RankTrials:
    """Trials on the ranks of a job, before any statistics; not saved in files."""

    trials: tuple[RankTrial, ...] = ()
    freed: tuple[Count, ...] = ()
    """Ranks whose loaders were free: the one that waits the most, whose loader ran alone, and others that wait about as
    long."""


NO_TRIALS = RankTrials()


# --- the diagnosis ------------------------------------------------------------------------------------------


SCHEMA_VERSION = 1

State = Literal["input_bound", "device_bound", "undecided"]
Finding = Literal["real", "within_noise", "undecided"]
GainBasis = Literal["measured", "estimated"]
JudgedBy = Literal["efficiency", "epoch_efficiency"]


@dataclass(frozen=True)
class Experiment:
    """One rung of the ladder."""

    name: str
    available: bool
    reason: str | None
    """Reason for not being available; None if it is."""
    coupled: Rate | None
    """Throughput with the train step."""
    drained: Rate | None
    """Throughput of the loader alone."""
    workers: Rate | None = None
    """Throughput of the workers alone: as drained, but batches are discarded instead of handed over."""
    serving: Rate | None = None
    """For `raw`: as `workers`, or as `drained` without workers, but through the code that serves recordings. Each
    experiment without a stage includes this replay overhead, so that it is compared with this one."""


@dataclass(frozen=True)
class Without:
    """The job with everything real except one stage, whose recorded output was used."""

    stage: str
    coupled: Rate | None
    workers: Rate | None = None
    """Throughput of the workers alone; of the loader alone if there are no workers."""


@dataclass(frozen=True)
class Stage:
    """A part of the pipeline's work, between two neighbouring experiments."""

    name: str
    inner: str | None
    """Experiment on its device side; None for the innermost stage."""
    outer: str
    """Experiment on its far side."""
    cost_s_per_batch: Interval | None
    exposed_s_per_batch: Interval | None
    exposed_share: Interval | None
    gain_if_free: Interval | None
    finding: Finding
    wall_s_per_batch: Amount | None = None
    """Time of one worker per batch, over the number of workers, as observed outside of the timed rounds; for `collate`
    including the writing into shared memory, which `cost_s_per_batch` counts as hand-off."""
    cpu_s_per_batch: Amount | None = None
    """CPU time of all threads of the worker in that."""
    possible_gain: Interval | None = None
    """`gain_if_free` limited to possible values: at least 1, at most what its cost and the whole input allow."""
    waiting_share: Amount | None = None
    """Share of its time in the workers in which it waits, on no core; None if not observed."""

    @classmethod
    def between(cls, name: str, inner: str | None, outer: str) -> Stage:
        """Return a stage between two experiments, before any analysis."""
        return cls(name, inner, outer, None, None, None, None, "undecided")

    @property
    def is_alternative(self) -> bool:
        """True if it is no part of `raw`, but of the same job in another state: `storage`, with cold files."""
        return self.outer == COLD

    @property
    def is_input(self) -> bool:
        """True if it is a part of the input of `raw`."""
        return self.name != COMPUTE and not self.is_alternative


@dataclass(frozen=True)
class UpperBound:
    """Highest throughput that the job could reach on its device."""

    experiment: str
    """`device`, or the experiment that clearly ran the train step faster, which may be `without` and a stage."""
    samples_per_s: Amount


@dataclass(frozen=True)
class Verdict:
    """Conclusion about the job."""

    state: State
    bottleneck: str | None
    contributors: tuple[str, ...]
    efficiency: Interval | None
    headroom: Interval | None
    sentence: str
    further_rounds: Count | None = None
    """Rounds that would probably decide an undecided verdict."""
    epoch_efficiency: Interval | None = None
    """Efficiency over a whole epoch, its start included; None if an epoch has no known length."""
    judged_by: JudgedBy = "efficiency"
    """The efficiency that decides the state and a gate: the one over an epoch if it is clearly lower."""
    straggler: Count | None = left_out()
    """Rank that clearly slows down all others; None if there is none."""
    loss: Interval | None = None
    """Share of the device's throughput that is lost to the input, by the efficiency that decides the state."""
    upper_bound: UpperBound | None = None
    """Throughput that is 100 % efficiency; null in files of earlier versions: `device`."""

    @property
    def judged(self) -> Interval | None:
        """The efficiency that decides the state and a gate."""
        return self.epoch_efficiency if self.judged_by == "epoch_efficiency" else self.efficiency


NO_VERDICT = Verdict("undecided", None, (), None, None, sentence="")
"""Verdict before any analysis."""


@dataclass(frozen=True)
class StepPart:
    """Time that a stage, or several that were not measured separately, adds to a step of the original job."""

    name: str
    stages: tuple[str, ...]
    outer: str
    """Experiment by which it was measured."""
    s_per_batch: Amount
    """Time; all parts add up to the step."""
    interval: Interval | None
    """Interval of the time; None for several stages."""
    end_s: Amount
    """Time of the step up to here, from the device outwards."""
    at_most_s: Amount | None
    """Upper bound if it may be zero; None otherwise."""
    by_clocks: bool = False
    """True if it was not measured separately from its neighbours, but divided by the workers' clocks."""


@dataclass(frozen=True)
class WhatIf:
    """Prediction for the job if some stages took no time, which is the most that a change to them can gain."""

    stages: tuple[str, ...]
    """Stages; empty for the whole input."""
    gain: Interval
    samples_per_s: Amount
    epoch_s: Amount | None
    """None if an epoch has no known length."""


@dataclass(frozen=True)
class Advice:
    """One thing to change, and why."""

    id: str
    stage: str | None
    title: str
    why: str
    how: str
    evidence: Mapping[str, Any]
    gain: Interval | None = None
    """Maximum expected factor of throughput; None if none is claimed. An estimate without its own error ranges from 1,
    which is no gain, to its value."""
    gain_basis: GainBasis | None = None
    """'measured' if the gain was measured with the stage free; None without a gain."""
    patch: str | None = left_out()
    """Edit for `git apply`; None if it does not concern known lines."""
    place: str | None = left_out()
    """File and line concerned."""
    prove: tuple[str, ...] = left_out(())
    """Command that measures the gain, to be run after the edit if it does not set anything itself."""


@dataclass(frozen=True)
class Warning:
    """A reason not to trust a number, with its remedy in the message."""

    id: str
    message: str


@dataclass(frozen=True)
class Cost:
    """Resources of the diagnosis itself."""

    seconds: Amount
    batches: Count
    samples: Count
    cache_bytes: Count


@dataclass(frozen=True)
class Tool:
    """The program that wrote the result."""

    name: str
    version: str


@dataclass(frozen=True)
class Result:
    """A diagnosis, as written to JSON version 1.

    Measuring makes one with blocks and without conclusions; the analysis returns it with both. An analysis of a
    saved result starts again from its blocks.
    """

    schema_version: int
    tool: Tool
    created: str
    """Time in UTC, in ISO 8601 format."""
    environment: Mapping[str, Any]
    pipeline: Mapping[str, Any]
    experiments: tuple[Experiment, ...]
    without: tuple[Without, ...]
    stages: tuple[Stage, ...]
    verdict: Verdict
    advice: tuple[Advice, ...]
    evidence: Evidence
    warnings: tuple[Warning, ...]
    cost: Cost
    ranks: tuple[Rank, ...] = left_out(())
    """Ranks of a job of many processes, in order; the blocks in `experiments` are those of the first."""
    step: tuple[StepPart, ...] = left_out(())
    """Parts of a step of the original job, from the device outwards."""
    what_if: tuple[WhatIf, ...] = left_out(())
    """Stages that clearly gain something, the most first; then several together, then the whole input."""
    next: tuple[tuple[str, ...], ...] = left_out(())
    """Commands that a program may run next; none if nothing is left to do, or if no command made the result."""

    def coupled(self, name: str | None) -> Rate | None:
        """Return the throughput of an experiment with the train step; None if it was not measured."""
        return _usable(next((e.coupled for e in self.experiments if e.name == name and e.available), None))

    @property
    def loader_alone(self) -> Rate | None:
        """Throughput of the loader alone; with workers, their batches are discarded if that was measured."""
        raw = next((e for e in self.experiments if e.name == RAW and e.available), None)
        return None if raw is None else _usable(raw.workers) or _usable(raw.drained)


def _usable(rate: Rate | None) -> Rate | None:
    """Return a throughput if it is plausible, because a file may contain any; None otherwise."""
    if rate is None:
        return None
    return rate if 0 < rate.seconds_per_batch < LARGEST and 0 < rate.samples_per_s < LARGEST else None


@dataclass(frozen=True)
class Leaning:
    """Probable verdict, before it is certain."""

    state: State
    bottleneck: str | None
    gain: float | None
    """Throughput without the bottleneck over that of the job."""
    chance: float
    """Probability that state and name are right, from 0 to 1."""


@dataclass(frozen=True)
class Judgement:
    """Judgement of the blocks so far, which measuring uses to decide when to stop."""

    state: State
    efficiency: Interval | None
    precise: bool
    """True if every share of interest is known to the desired precision."""
    costs_precise: bool = True
    """True if the cost of each stage is known to the desired precision, too."""
    named: bool = True
    """True if the stage can be named that limits the job, if the input does."""
    stands: bool = False
    """True if state and name are right, regardless of how often they are checked."""
    settled: bool = False
    """True if state and name are right, and the accompanying numbers are useful."""
    is_elsewhere: bool = False
    """True if other parts of a script's loop take more of the wall clock than the input may at most."""
    bottleneck: str | None = None
    """Stage that would be named."""
    settled_stages: frozenset[str] = frozenset()
    """Stages without which the job clearly gains nothing worth acting on."""
    leaning: Leaning | None = None
    likely_stages: tuple[str, ...] = ()
    """Stages without which the job may gain something by the workers' clocks, the most likely bottleneck first."""
    expected_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds per batch predicted by these clocks: of experiments by name, of a job without X by `without X`."""


NO_JUDGEMENT = Judgement("undecided", None, precise=True)
"""Judgement before any round, which asks for nothing more."""
