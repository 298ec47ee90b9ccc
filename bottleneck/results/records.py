"""The records of one diagnosis: blocks as measured, and what the analysis derived from them.

All numbers are in SI units and say so in their names. Records are immutable; the analysis makes new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bottleneck.results.evidence import Evidence
from bottleneck.results.names import RAW
from bottleneck.results.values import LARGEST, Amount, Count, left_out
from bottleneck.results.values import Block as Block  # noqa: PLC0414  it is one of the records
from bottleneck.results.values import Interval as Interval  # noqa: PLC0414
from bottleneck.results.values import Rate as Rate  # noqa: PLC0414
from bottleneck.results.values import blocks_of as blocks_of  # noqa: PLC0414

# --- ranks of a job -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankExperiment:
    """What a batch takes on this rank in one experiment: the mean over its blocks."""

    name: str
    coupled_s_per_batch: Amount | None = None
    drained_s_per_batch: Amount | None = None
    coupled: tuple[Block, ...] = left_out(())
    """Kept of a few ranks only: with all of them, a result of a thousand ranks could not be read."""
    drained: tuple[Block, ...] = left_out(())


@dataclass(frozen=True)
class Rank:
    """One process of the job."""

    rank: Count
    host: str
    device: str
    local_rank: Count | None = None
    cores: Count | None = None
    """That it may use; ranks of one host may share them."""
    cores_of_host: Count | None = None
    """That the ranks of its host may use together."""
    num_workers: Count | None = None
    samples_per_epoch: Count | None = None
    """None where its epoch has no known length."""
    experiments: tuple[RankExperiment, ...] = ()
    wait_s_per_batch: Amount | None = None
    """What its loop waits for its loader in the job as it is."""
    step_s_per_batch: Amount | None = None
    """The rest of its step in the job as it is, in which it waits for other ranks too."""
    alone_s_per_batch: Amount | None = None
    """What its loader takes for a batch without a train step, while those of the other ranks rest."""
    unshared_step_s_per_batch: Amount | None = None
    """What its train step takes for a batch that is on the device, with no gradients shared: it waits for nobody."""
    stage: str | None = None
    """The stage that costs the most on this rank."""
    held: Interval | None = None
    """The factor of throughput of the job with this rank's loader free and the others' at work; None where that was
    not tried."""

    def without_blocks(self) -> Rank:
        """The rank without the blocks of its experiments."""
        return replace(self, experiments=tuple(replace(found, coupled=(), drained=()) for found in self.experiments))


# --- trials -----------------------------------------------------------------------------------------------

TrialName = Literal[
    "device", "device-unshared", "raw", "raw-unshared", "raw-freed", "raw-held", "loaders", "loader-alone"
]
"""Batches cached on the device, and the job as it is, both also without sharing gradients; the job with the loaders of
some ranks free, and with those of all others free; all loaders at once, and one of them while the others rest."""


@dataclass(frozen=True)
class RankTrial:
    """Blocks of one rank in a trial."""

    name: TrialName
    rank: Count
    blocks: tuple[Block, ...]
    cpu_s: Amount | None = None
    """CPU time of the rank's processes in these blocks; None where that was not counted."""
    network_bytes: Amount | None = None
    """That its host sent and received in these blocks."""


@dataclass(frozen=True)
class RankTrials:
    """The trials on the ranks of a job, before any statistics; no file holds them."""

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
    """Why it is not available; None when it is."""
    coupled: Rate | None
    """With the train step."""
    drained: Rate | None
    """The loader alone."""
    workers: Rate | None = None
    """The workers alone: as drained, but batches are thrown away instead of handed over."""
    serving: Rate | None = None
    """Of `raw`: as `workers`, or as `drained` without workers, by way of the code that serves recordings. Each
    experiment without a stage pays for that code, so that this is what it is compared with."""


@dataclass(frozen=True)
class Without:
    """Everything real except one stage, whose recorded output was used."""

    stage: str
    coupled: Rate | None
    workers: Rate | None = None
    """The workers alone; the loader alone where there are no workers."""


@dataclass(frozen=True)
class Stage:
    """A piece of the pipeline's work, between two neighbouring experiments."""

    name: str
    inner: str | None
    """The experiment on its device side; None for the innermost stage."""
    outer: str
    """The experiment on its far side."""
    cost_s_per_batch: Interval | None
    exposed_s_per_batch: Interval | None
    exposed_share: Interval | None
    gain_if_free: Interval | None
    finding: Finding
    wall_s_per_batch: Amount | None = None
    """What it takes of one worker for a batch, over the number of workers, as observed outside of the timed rounds;
    for `collate` with the writing into shared memory, which `cost_s_per_batch` leaves to the hand-off."""
    cpu_s_per_batch: Amount | None = None
    """The CPU time in that, of all threads of the worker."""
    possible_gain: Interval | None = None
    """`gain_if_free` within what is possible: at least 1, no more than its cost and all of the input allow."""
    waiting_share: Amount | None = None
    """The part of its time in the workers that is waiting, on no core; None where that was not observed."""

    @classmethod
    def between(cls, name: str, inner: str | None, outer: str) -> Stage:
        """A stage between two experiments, before any analysis."""
        return cls(name, inner, outer, None, None, None, None, "undecided")


@dataclass(frozen=True)
class UpperBound:
    """What the job could get from its device."""

    experiment: str
    """`device`, or what surely ran the train step faster: another experiment, or `without` and a stage."""
    samples_per_s: Amount


@dataclass(frozen=True)
class Verdict:
    """What the measurement says about the job."""

    state: State
    bottleneck: str | None
    contributors: tuple[str, ...]
    efficiency: Interval | None
    headroom: Interval | None
    sentence: str
    further_rounds: Count | None = None
    """Rounds that would probably decide an undecided verdict."""
    epoch_efficiency: Interval | None = None
    """The efficiency over a whole epoch, its start included; None where an epoch has no known length."""
    judged_by: JudgedBy = "efficiency"
    """Which of the two the state and a gate go by: the one over an epoch where it is surely lower."""
    straggler: Count | None = left_out()
    """The rank that surely holds all others; None where there is none."""
    loss: Interval | None = None
    """The part of the device's throughput that the input costs, by the efficiency that the state goes by."""
    upper_bound: UpperBound | None = None
    """What the efficiency is a part of; null in files of earlier versions, where it is `device`."""

    @property
    def judged(self) -> Interval | None:
        """The efficiency that the state and a gate go by."""
        return self.epoch_efficiency if self.judged_by == "epoch_efficiency" else self.efficiency


NO_VERDICT = Verdict("undecided", None, (), None, None, sentence="")
"""Before any analysis."""


@dataclass(frozen=True)
class StepPart:
    """What a stage adds to a step of the job as it is, or several that were not measured apart."""

    name: str
    stages: tuple[str, ...]
    outer: str
    """The experiment that it was measured by."""
    s_per_batch: Amount
    """All parts add up to the step."""
    interval: Interval | None
    """Around it; None for several stages."""
    end_s: Amount
    """The step up to here, from the device outwards."""
    at_most_s: Amount | None
    """An upper bound, where it may be nothing at all."""
    by_clocks: bool = False
    """It was not measured apart from its neighbours: the workers' clocks say which part of them it is."""


@dataclass(frozen=True)
class WhatIf:
    """What the job would get if some stages took no time: no change to them brings more."""

    stages: tuple[str, ...]
    """None: all of the input."""
    gain: Interval
    samples_per_s: Amount
    epoch_s: Amount | None
    """None where an epoch has no known length."""


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
    """The factor of throughput to be expected, at most; None where none is claimed. An estimate without an error of
    its own goes from 1, which is no gain, to its value."""
    gain_basis: GainBasis | None = None
    """'measured' where the gain is what the job got with the stage free; None without a gain."""
    patch: str | None = left_out()
    """The edit for `git apply`; None where it is not one of known lines."""
    place: str | None = left_out()
    """File and line that it is about."""
    prove: tuple[str, ...] = left_out(())
    """The command that shows what it brings; after the edit, where it sets nothing by itself."""


@dataclass(frozen=True)
class Warning:
    """A reason not to trust a number, with its remedy in the message."""

    id: str
    message: str


@dataclass(frozen=True)
class Cost:
    """What the diagnosis itself took."""

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

    The measuring makes one with blocks and without conclusions; the analysis returns it with both. An analysis of a
    saved result starts again from its blocks.
    """

    schema_version: int
    tool: Tool
    created: str
    """When, as an ISO 8601 time in UTC."""
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
    """Of a job of many processes, in their order; the blocks in `experiments` are those of the first."""
    step: tuple[StepPart, ...] = left_out(())
    """A step of the job as it is, from the device outwards."""
    what_if: tuple[WhatIf, ...] = left_out(())
    """The stages that surely gain something, the most first; then several together, then all of the input."""
    next: tuple[tuple[str, ...], ...] = left_out(())
    """Commands that a program may run next; none where there is nothing left to do, and where no command made it."""

    def coupled(self, name: str | None) -> Rate | None:
        """The throughput of an experiment with the train step; None where it was not measured."""
        return _usable(next((e.coupled for e in self.experiments if e.name == name and e.available), None))

    @property
    def loader_alone(self) -> Rate | None:
        """The throughput of the loader by itself; without workers to discard batches, as it hands them over."""
        raw = next((e for e in self.experiments if e.name == RAW and e.available), None)
        return None if raw is None else _usable(raw.workers) or _usable(raw.drained)


def _usable(rate: Rate | None) -> Rate | None:
    """A throughput that makes sense; a file may hold any."""
    if rate is None:
        return None
    return rate if 0 < rate.seconds_per_batch < LARGEST and 0 < rate.samples_per_s < LARGEST else None


@dataclass(frozen=True)
class Leaning:
    """What the job probably is, before that is sure."""

    state: State
    bottleneck: str | None
    gain: float | None
    """The throughput without the bottleneck over that of the job."""
    chance: float
    """How likely state and name are right, from 0 to 1."""


@dataclass(frozen=True)
class Judgement:
    """What the analysis says of the blocks so far; the measuring asks for it to know when to stop."""

    state: State
    efficiency: Interval | None
    precise: bool
    """Every share of interest is known to the wanted precision."""
    costs_precise: bool = True
    """What each stage costs the loader is known to the wanted precision, too."""
    named: bool = True
    """If the input holds the job, the stage that does can be named."""
    stands: bool = False
    """State and name are right, however often this is asked."""
    settled: bool = False
    """They stand, and the numbers that go with them are of use."""
    bottleneck: str | None = None
    """The stage that would be named."""
    settled_stages: frozenset[str] = frozenset()
    """Without these the job surely gains nothing worth acting on."""
    leaning: Leaning | None = None
    likely_stages: tuple[str, ...] = ()
    """Stages without which the job may gain something by the workers' own clocks, the most likely bottleneck first."""
    expected_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds per batch that these clocks predict: of experiments by their names, of a job without X by `without X`."""


NO_JUDGEMENT = Judgement("undecided", None, precise=True)
"""Before any round: nothing more is asked for."""
