"""What the measuring of many ranks hands to the analysis beside the experiments; no file holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bottleneck.results.blocks import Block
from bottleneck.results.values import Amount, Count

TrialName = Literal[
    "device", "device-unshared", "raw", "raw-unshared", "raw-freed", "raw-held", "loaders", "loader-alone"
]
"""What is tried on ranks: batches cached on the device, and the job as it is, both also without sharing gradients; the
job with the loaders of some ranks free, and with those of all others free; all loaders at once, and one of them while
the others rest."""


@dataclass(frozen=True)
class RankTrial:
    """Blocks of one rank in something that was tried."""

    name: TrialName
    rank: Count
    blocks: tuple[Block, ...]
    cpu_s: Amount | None = None
    """CPU time of the rank's processes in these blocks; None where that was not counted."""
    network_bytes: Amount | None = None
    """What its host sent and received meanwhile."""


@dataclass(frozen=True)
class RankTrials:
    """What was tried on the ranks of a job, before any statistics."""

    trials: tuple[RankTrial, ...] = ()
    freed: tuple[Count, ...] = ()
    """Those that were tried with free loaders: the one that waits the most, whose loader was tried alone, and others
    that wait about as long."""


NO_TRIALS = RankTrials()
