"""One rank of a job of many: where it runs, and what its part of the job takes.

In a job that shares gradients each step takes the same on all ranks, because each waits for the slowest. Ranks differ
in what they wait for, and in what their loaders take alone.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bottleneck.results.blocks import Block
from bottleneck.results.evidence.fields import left_out
from bottleneck.results.values import Amount, Count, Interval


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


def with_blocks_of(ranks: Sequence[Rank], kept: Container[int]) -> tuple[Rank, ...]:
    """The ranks, with the blocks of those that are kept only."""
    return tuple(rank if rank.rank in kept else _summary(rank) for rank in ranks)


def _summary(rank: Rank) -> Rank:
    return replace(rank, experiments=tuple(replace(found, coupled=(), drained=()) for found in rank.experiments))


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
