"""Findings on a job of many ranks as a whole: the straggler, and the cost of sharing gradients.

Each step waits for the slowest rank, so that the throughput of one is that of all, and the blocks of the first rank
decide the state. Which rank it waited for shows only in the experiments that tell them apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import TypeGuard

from bottleneck.analysis.settings import LOSS_WORTH_TOUCHING
from bottleneck.results.evidence import Evidence, RanksTogether, Straggler
from bottleneck.results.format import duration, gain_interval, names, plural
from bottleneck.results.names import COMPUTE, RAW
from bottleneck.results.records import Interval, Rank
from bottleneck.results.values import LARGEST

_WORTH = 1 + LOSS_WORTH_TOUCHING
"""Gain that is worth naming if it is clearly exceeded, like lost throughput of the input."""
_MAX_NAMED = 8
"""Ranks in a sentence."""


# --- the job ----------------------------------------------------------------------------------------------


def straggler_of(together: RanksTogether) -> Straggler | None:
    """Return the rank that clearly slows down all others; None if there is none."""
    found = together.straggler
    return found if found is not None and _is_worth_naming(found.gain) else None


def sync_gain(together: RanksTogether) -> Interval | None:
    """Return the job's clear gain without sharing gradients; None if that is not worth naming.

    A rank that shares nothing does not wait: while one rank slows down the others, their gain without sharing
    gradients is that they no longer wait for it, unless it is clearly more.
    """
    found, held = together.sync.gain_if_free, straggler_of(together)
    if not _is_worth_naming(found):
        return None
    return found if held is None or held.gain is None or found.low > held.gain.high else None


def _is_worth_naming(gain: Interval | None) -> TypeGuard[Interval]:
    """Return True if a gain is clearly worth touching; a file may hold bounds that enclose nothing."""
    return gain is not None and _WORTH < gain.low <= gain.estimate <= gain.high < LARGEST


def straggler_sentence(together: RanksTogether) -> str:
    """Return a sentence on the straggler, its slow stage and the gain without it; empty if there is none."""
    held = straggler_of(together)
    if held is None:
        return ""
    every = "all" if together.world is None else f"all {together.world:,}"
    its, slow = ("their", "slow") if held.ranks else ("its", "slows")
    by = {None: "", COMPUTE: f" with {its} train step"}.get(held.stage, f" with {its} {held.stage}")
    who = f"Rank {held.rank:,} on {held.host} ({held.device})" if not held.ranks else called(held).capitalize()
    return f"{who} {slow} down {every} ranks{by}. Without that: {gain_interval(held.gain)} the throughput."


def shared_name(what: str) -> str:
    """Return the name of a contended resource, in words."""
    return "memory bandwidth and caches" if what == "memory" else f"the {what}"


def called(held: Straggler) -> str:
    """Return the rank or ranks that slow down the others: `rank 3 on node-0`, `ranks 4 and 5`."""
    if not held.ranks:
        return f"rank {held.rank:,} on {held.host}"
    shown = [f"{rank:,}" for rank in held.ranks[:_MAX_NAMED]]
    if len(held.ranks) > _MAX_NAMED:
        shown.append(plural(len(held.ranks) - _MAX_NAMED, "other"))
    return f"ranks {names(shown)}"


def sync_sentence(together: RanksTogether) -> str:
    """Return a sentence on the cost of sharing gradients; empty if it is negligible."""
    gained = sync_gain(together)
    if gained is None:
        return ""
    cost_s = together.sync.cost_s_per_batch
    if cost_s is None or cost_s <= 0:
        return f"Without sharing gradients: {gain_interval(gained)} the throughput."
    return (
        f"Sharing gradients takes {duration(cost_s)} of each step. Without it: {gain_interval(gained)} the throughput."
    )


# --- single ranks -----------------------------------------------------------------------------------------


def loader_s(rank: Rank) -> float | None:
    """Return the seconds per batch of its loader with all loaders at work; otherwise alone."""
    known = [one.drained_s_per_batch for one in rank.experiments if one.name == RAW]
    return known[0] if known and known[0] is not None else rank.alone_s_per_batch


def by_slowness(ranks: Sequence[Rank], together: RanksTogether) -> tuple[Rank, ...]:
    """Return the ranks, slowest first: the straggler, then by their loaders and by how long they wait."""
    held = straggler_of(together)

    def slowness(rank: Rank) -> tuple[bool, float, float]:
        return held is not None and rank.rank == held.rank, loader_s(rank) or 0.0, rank.wait_s_per_batch or 0.0

    return tuple(sorted(ranks, key=slowness, reverse=True))


def extremes(ranks: Sequence[Rank], together: RanksTogether) -> tuple[Rank, ...]:
    """Return the slowest rank, the median and the fastest; fewer if there are fewer."""
    ordered = by_slowness(ranks, together)
    places = sorted({0, len(ordered) // 2, len(ordered) - 1})
    return tuple(ordered[at] for at in places) if ordered else ()


def kept_ranks(ranks: Sequence[Rank], evidence: Evidence) -> tuple[Rank, ...]:
    """Return the ranks of a result: summaries of all, and blocks of those that a report is about."""
    told = {rank.rank for rank in extremes(ranks, evidence.ranks)}
    return tuple(rank if rank.rank in told else rank.without_blocks() for rank in ranks)


def median_loader_s(ranks: Sequence[Rank]) -> float | None:
    """Return the seconds per batch of the median rank's loader."""
    known = [seconds for seconds in map(loader_s, ranks) if seconds is not None]
    return median(known) if known else None


def ranks_per_host(ranks: Sequence[Rank]) -> int:
    """Return the ranks on the host with the most of them; 0 if unknown."""
    return max(Counter(rank.host for rank in ranks).values(), default=0)


def cores_of_host(ranks: Sequence[Rank]) -> int | None:
    """Return the cores that the ranks of a host may use together, on the host that has the fewest."""
    return min((rank.cores_of_host for rank in ranks if rank.cores_of_host), default=None)


def workers_that_fit(ranks: Sequence[Rank], reserved: int = 1) -> int | None:
    """Return the workers of a rank that fit into its part of the host's cores; None if unknown.

    Args:
        ranks: Ranks of the job.
        reserved: Cores for each rank's main process.
    """
    here, cores = ranks_per_host(ranks), cores_of_host(ranks)
    return None if cores is None or not here else max(1, cores // here - reserved)
