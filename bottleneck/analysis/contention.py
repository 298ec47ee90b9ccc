"""What the loaders of several ranks take from each other, where a batch takes longer beside the others than alone.

Workers either compute longer for the same batch, or they wait longer. CPU time tells the two apart: it grows where
running cores share memory bandwidth and caches, and does not where a worker waits for a core, a disk or the network.
"""

from __future__ import annotations

from typing import Literal

from bottleneck.analysis.saturation import contended_resource
from bottleneck.results.evidence import Evidence
from bottleneck.results.rank_trials import RankTrial

Contended = Literal["cores", "memory", "disk", "network"]

_MOST = 0.5
"""The part of what a batch takes longer that has to be CPU time, for memory to be what is shared."""
_NO_FASTER = 1.25
"""What a host receives together over what it receives for one loader, at most, where the network is used up."""
_FROM_NETWORK = 0.05
"""Bytes over the network for a batch, as a part of its payload, from which on it comes from there: files are smaller
than what is decoded from them, and other traffic is smaller still."""


def find_contended(together: RankTrial, alone: RankTrial, workers: int, evidence: Evidence) -> Contended | None:
    """Return what the loaders contend for; None where nothing that is measured tells.

    Args:
        together, alone: The loader of one rank beside those of all others, and by itself. It surely takes longer
            beside them.
        workers: Of that rank.
    """
    if _computes_longer(together, alone, workers):
        return "memory"
    return contended_resource(evidence) or ("network" if _fills_network(together, alone, evidence) else None)


def _computes_longer(together: RankTrial, alone: RankTrial, workers: int) -> bool:
    if together.cpu_s is None or alone.cpu_s is None:
        return False
    computes_s = together.cpu_s / _batches(together) - alone.cpu_s / _batches(alone)
    takes_s = _seconds(together) / _batches(together) - _seconds(alone) / _batches(alone)
    return computes_s >= _MOST * takes_s * max(1, workers)  # so many batches are made at a time


def _fills_network(together: RankTrial, alone: RankTrial, evidence: Evidence) -> bool:
    payload = evidence.payload.bytes
    if together.network_bytes is None or alone.network_bytes is None or not payload:
        return False
    if alone.network_bytes / _batches(alone) < _FROM_NETWORK * payload:
        return False
    return together.network_bytes / _seconds(together) <= _NO_FASTER * alone.network_bytes / _seconds(alone)


def _batches(trial: RankTrial) -> int:
    return max(1, sum(block.batches for block in trial.blocks))


def _seconds(trial: RankTrial) -> float:
    return sum(block.seconds for block in trial.blocks)
