"""What a rank says of itself, for the first one to gather."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from torch.utils.data import DataLoader, IterableDataset

from bottleneck.job.world import find_place
from bottleneck.measure.bench import Bench
from bottleneck.measure.job_on_device import JobOnDevice
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.ranks.group import Group
from bottleneck.measure.system.cores import allowed_cores, allowed_cpus
from bottleneck.results.blocks import Block
from bottleneck.results.names import RAW
from bottleneck.results.rank_trials import RankTrial
from bottleneck.results.ranks import Rank, RankExperiment, with_blocks_of
from bottleneck.results.records import Experiment, blocks_of


def summarise(group: Group, job: JobOnDevice, bench: Bench, ledger: Ledger) -> Rank:
    """This rank, with the blocks of all its experiments."""
    measured = ledger.measurement().experiments
    raw = ledger.ladder.raw if ledger.ladder is not None else None
    waits = bench.waits_s.get(raw, []) if raw is not None else []
    place = find_place()
    return Rank(
        rank=group.rank,
        host=group.host,
        device=str(job.device),
        local_rank=place.local_rank if place is not None and place.rank == group.rank else None,
        cores=allowed_cores(),
        num_workers=job.loader.num_workers,
        samples_per_epoch=samples_per_epoch(job.loader),
        experiments=tuple(_on_this_rank(e) for e in measured if e.coupled or e.drained),
        wait_s_per_batch=sum(waits) / len(waits) if waits else None,
        step_s_per_batch=bench.work_s_per_batch,
        stage=_longest_stage(ledger),
    )


def _on_this_rank(measured: Experiment) -> RankExperiment:
    coupled, drained = blocks_of(measured.coupled), blocks_of(measured.drained)
    return RankExperiment(measured.name, per_batch_s(coupled), per_batch_s(drained), coupled, drained)


def _longest_stage(ledger: Ledger) -> str | None:
    """The stage of its loader that was seen to take the longest."""
    spans = ledger.ladder.spans if ledger.ladder is not None else ()
    seen = {span.name: span.wall_s_per_batch for span in spans if span.wall_s_per_batch}
    return max(seen, key=lambda name: seen[name], default=None)


def per_batch_s(blocks: tuple[Block, ...]) -> float | None:
    """What a batch takes, over some blocks; None without any."""
    batches = sum(block.batches for block in blocks)
    return sum(block.seconds for block in blocks) / batches if batches else None


def samples_per_epoch(loader: DataLoader[Any]) -> int | None:
    """Samples of this rank in one epoch; None where that has no known length."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    try:
        if loader.batch_sampler is not None and loader.batch_size is None:
            return None
        return len(loader.sampler)  # type: ignore[arg-type]  # those without a length raise
    except (TypeError, NotImplementedError):
        return None


def gather_ranks(group: Group, own: Rank) -> tuple[Rank, ...]:
    """All ranks, with the blocks of the slowest, the median and the fastest; nothing but on the first rank."""
    (bare,) = with_blocks_of([own], ())
    texts = group.gather(_encode((bare, allowed_cpus() or ())))
    bound = [msgspec.json.decode(text, type=tuple[Rank, list[int]]) for text in texts or ()]
    found = with_cores_of_hosts(bound)
    chosen = group.share(_encode(_extremes(found)))
    wanted = msgspec.json.decode(chosen, type=list[int])
    sent = group.gather(_encode(own) if own.rank in wanted else "")
    if sent is None:
        return ()
    measured = {rank.rank: rank.experiments for rank in (msgspec.json.decode(text, type=Rank) for text in sent if text)}
    return tuple(replace(rank, experiments=measured.get(rank.rank, rank.experiments)) for rank in found)


def with_cores_of_hosts(bound: Sequence[tuple[Rank, Sequence[int]]]) -> list[Rank]:
    """The ranks, each with how many cores those of its host may use together.

    A launcher may have bound each of them to cores of its own.

    Args:
        bound: Each rank with the numbers of the cores that it may use; none where these are unknown.
    """
    hosts: dict[str, set[int]] = {}
    for rank, cpus in bound:
        hosts.setdefault(rank.host, set()).update(cpus)
    return [replace(rank, cores_of_host=len(hosts[rank.host]) or None) for rank, _ in bound]


def gather_trials(group: Group, own: tuple[RankTrial, ...]) -> tuple[RankTrial, ...]:
    """What was tried on all ranks; nothing but on the first rank."""
    texts = group.gather(_encode(own))
    return tuple(trial for text in texts or () for trial in msgspec.json.decode(text, type=list[RankTrial]))


def loader_s(rank: Rank) -> float:
    """What its loader takes for a batch with all loaders at work; 0 where that was not measured."""
    return next((e.drained_s_per_batch or 0.0 for e in rank.experiments if e.name == RAW), 0.0)


def _extremes(ranks: list[Rank]) -> list[int]:
    ordered = sorted(ranks, key=lambda rank: (loader_s(rank), rank.wait_s_per_batch or 0.0))
    most_waiting = max(ranks, key=lambda rank: rank.wait_s_per_batch or 0.0, default=None)
    chosen = [*(ordered[at] for at in (0, len(ordered) // 2, -1) if ordered), *([most_waiting] if most_waiting else ())]
    return sorted({rank.rank for rank in chosen})


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()
