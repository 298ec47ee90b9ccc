"""Limits of a job of many ranks: a straggler, contention, uneven shards, or sharing gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bottleneck.analysis.advice.case import Case, Suggestion, rule
from bottleneck.analysis.ranks import (
    called,
    cores_of_host,
    loader_s,
    median_loader_s,
    ranks_per_host,
    shared_name,
    straggler_of,
    straggler_sentence,
    sync_gain,
    workers_that_fit,
)
from bottleneck.results.format import duration, gain, number, plural
from bottleneck.results.names import COMPUTE, LOADING

_SURE_CONTENTION = 1.05
"""Ratio by which a batch clearly takes longer while all loaders run, above which it is worth a remark."""
_COMPRESSED = 0.5
"""The part of the bytes of float32 gradients that bfloat16 saves."""
_REMEDIES = {
    COMPUTE: "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE on {host} shows a device that is throttled or shared: "
    "replace it, or leave it out",
    "loading": "look at the disk, the mount and the page cache of {host}: copy the data there beforehand, or read "
    "shards",
    "other": "look for other processes on {host}, and at the cores of rank {rank} (taskset -cp PID); compare "
    "`bottleneck doctor` on {host} and on another host",
}
_READ_LESS = "read larger pieces, shards instead of single files, or copy the data to a local disk of each host"
_LESS = {
    "disk": _READ_LESS,
    "network": _READ_LESS,
    "memory": "copy and convert less in the workers, such as by keeping pixels uint8 until the device; on a host of "
    "several NUMA nodes, bind each rank to one: torchrun --numa-binding=node ...",
}


@rule("straggler")
def _straggler(case: Case) -> Iterator[Suggestion]:
    """Point at the rank that all others wait for, and at the stage in which it is slow."""
    held = straggler_of(case.evidence.ranks)
    if held is None or held.gain is None:
        return
    own = next((loader_s(rank) for rank in case.ranks if rank.rank == held.rank), None)
    usual = median_loader_s(case.ranks)
    kind = COMPUTE if held.stage == COMPUTE else "loading" if held.stage in LOADING else "other"
    loads = held.stage != COMPUTE and own is not None and usual is not None
    compared = f" Its loader takes {duration(own)} a batch, that of the median rank {duration(usual)}."
    yield Suggestion(
        title=f"Look at {called(held)}: all others wait for {'them' if held.ranks else 'it'}",
        why=f"{straggler_sentence(case.evidence.ranks)}{compared if loads else ''}",
        how=_REMEDIES[kind].format(host=held.host, rank=held.rank),
        evidence={
            "rank": held.rank,
            "ranks": list(held.ranks),
            "host": held.host,
            "device": held.device,
            "slow_in": held.stage,
            "loader_s_per_batch": own,
            "median_loader_s_per_batch": usual,
        },
        gain=held.gain,
    )


@rule("rank-contention")
def _contention(case: Case) -> Iterator[Suggestion]:
    """Advise fewer workers or less sharing if the loaders of an input-bound job slow each other down."""
    found = case.evidence.ranks.contention
    if found.ratio is None or found.ratio.low <= _SURE_CONTENTION or not case.input_bound:
        return
    here, cores, fit = ranks_per_host(case.ranks), cores_of_host(case.ranks), workers_that_fit(case.ranks)
    slower = f"The loader takes {gain(found.ratio.estimate)} as long for a batch when all ranks load as alone"
    numbers = {"ratio": found.ratio.estimate, "ranks_per_host": here, "cores": cores, "contended": found.what}
    if found.what in (None, "cores") and fit is not None and fit < case.workers:
        together = f"{plural(here, 'rank')} of a host start {number(here * case.workers)} workers on {cores:,} cores"
        yield Suggestion(
            title=f"Lower num_workers from {case.workers:.0f} to {fit}: the ranks of a host share its cores",
            why=f"{slower}. {together}, which have room for {plural(fit, 'worker')} and a main process for each rank.",
            how=case.loader_with(f"num_workers={fit}"),
            evidence={**numbers, "num_workers": case.workers, "proposed": {"num_workers": fit}},
        )
        return
    yield Suggestion(
        title="The loaders of the ranks slow each other down: let them share less",
        why=f"{slower}{f', by sharing {shared_name(found.what)}' if found.what else ''}.",
        how=_LESS.get(found.what or "", "use hosts with more cores for each device, or make a sample with less work"),
        evidence={**numbers, "num_workers": case.workers},
    )


@rule("uneven-shards")
def _uneven_shards(case: Case) -> Iterator[Suggestion]:
    """Warn of epochs that end on some ranks before they end on others."""
    size = case.positive("batch_size")
    rounded = math.floor if case.pipeline.get("drop_last") is True else math.ceil
    if size is None:
        return
    steps = {rank.rank: rounded(rank.samples_per_epoch / size) for rank in case.ranks if rank.samples_per_epoch}
    if len(steps) < 2 or min(steps.values()) == max(steps.values()):
        return
    most, fewest = max(steps, key=lambda rank: steps[rank]), min(steps, key=lambda rank: steps[rank])
    yield Suggestion(
        title="Give all ranks the same number of batches",
        why=f"An epoch has {number(steps[most])} batches on rank {most} and {number(steps[fewest])} on rank {fewest}: "
        "where gradients are shared, one waits at the end for steps that the other never makes.",
        how="DataLoader(..., sampler=DistributedSampler(dataset, drop_last=True), drop_last=True)",
        evidence={"most_batches": steps[most], "fewest_batches": steps[fewest], "rank": fewest},
    )


@rule("share-less")
def _sync(case: Case) -> Iterator[Suggestion]:
    """Advise to share gradients less often, or fewer bytes of them."""
    together, gained = case.evidence.ranks, sync_gain(case.evidence.ranks)
    if gained is None:
        return
    cost_s = together.sync.cost_s_per_batch
    takes = f"takes {duration(cost_s)} of each {duration(case.step_s)} step" if cost_s else "takes part of each step"
    yield Suggestion(
        title="Share gradients less often, or fewer bytes of them",
        why=f"Sharing gradients {takes}; without it the job has {gain(gained.estimate)} the throughput. In bfloat16 "
        "it moves half of the bytes, with 4 steps of accumulation a quarter of them.",
        how="from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
        "model.register_comm_hook(None, default_hooks.bf16_compress_hook)  # or model.no_sync() in 3 of 4 steps",
        evidence={
            "sync_s_per_batch": cost_s,
            "step_s": case.step_s,
            "gain": gained.estimate,
            "backend": together.backend,
        },
        gain=1 / (1 - _COMPRESSED * (1 - 1 / gained.estimate)),
    )


RULES = (_straggler, _contention, _uneven_shards, _sync)
