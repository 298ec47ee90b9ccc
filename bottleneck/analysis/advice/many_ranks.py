"""What holds a job of many ranks: one of them, what they take from each other, uneven shards, or sharing gradients."""

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
    straggler_of,
    straggler_sentence,
    sync_gain,
    workers_that_fit,
)
from bottleneck.analysis.settings import number as setting
from bottleneck.results.evidence import Straggler
from bottleneck.results.format import duration, gain, number, plural
from bottleneck.results.names import COMPUTE, LOADING

_SURE_CONTENTION = 1.05
"""What a batch surely takes longer while all loaders run, from which on that is worth a remark."""
_LEAST_THREADS = 2
_COMPRESSED = 0.5
"""The part of the bytes of float32 gradients that bfloat16 saves."""
_REMEDIES = {
    COMPUTE: "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE on {host} shows a device that is throttled or shared: "
    "exchange it, or leave it out",
    "loading": "look at the disk, the mount and the page cache of {host}: copy the data there beforehand, or read "
    "shards",
    "other": "look for other processes on {host}, and at the cores of rank {rank} (taskset -cp PID); compare "
    "`bottleneck doctor` on {host} and on another host",
}
_CONTENDED = {
    "cores": " Together they use up the cores.",
    "memory": " Their workers compute longer for the same batch: they share memory bandwidth and caches.",
    "disk": " Together they use up the disk.",
    "network": " Together they get no more over the network than one of them alone.",
}
_READ_LESS = "read larger pieces, shards instead of single files, or copy the data to a local disk of each host"
_COPY_LESS = (
    "copy and convert less in the workers, such as by keeping pixels uint8 until the device; on a host of several "
    "NUMA nodes, bind each rank to one: torchrun --numa-binding=node ..."
)
_WORK_LESS = "make the work of a sample cheaper and read larger pieces, or use hosts with more cores for each device"
_LESS = {"disk": _READ_LESS, "network": _READ_LESS, "memory": _COPY_LESS}


@rule("straggler")
def _straggler(case: Case) -> Iterator[Suggestion]:
    """Point at the rank that all others wait for, and at what it is slow in."""
    held = straggler_of(case.evidence.ranks)
    if held is None or held.gain is None:
        return
    own = next((loader_s(rank) for rank in case.ranks if rank.rank == held.rank), None)
    usual = median_loader_s(case.ranks)
    loads = held.stage != COMPUTE and own is not None and usual is not None
    compared = f" Its loader takes {duration(own)} a batch, that of the rank in the middle {duration(usual)}."
    yield Suggestion(
        title=f"Look at {called(held)}: all others wait for {'them' if held.ranks else 'it'}",
        why=f"{straggler_sentence(case.evidence.ranks)}{compared if loads else ''}",
        how=_remedy(held),
        evidence={
            "rank": held.rank, "ranks": list(held.ranks), "host": held.host, "device": held.device,
            "slow_in": held.stage, "loader_s_per_batch": own, "median_loader_s_per_batch": usual,
        },
        gain=held.gain,
    )  # fmt: skip


def _remedy(held: Straggler) -> str:
    kind = COMPUTE if held.stage == COMPUTE else "loading" if held.stage in LOADING else "other"
    return _REMEDIES[kind].format(host=held.host, rank=held.rank)


@rule("rank-contention")
def _contention(case: Case) -> Iterator[Suggestion]:
    """Advise what fits where the loaders of an input-bound job slow each other down."""
    found = case.evidence.ranks.contention
    if found.ratio is None or found.ratio.low <= _SURE_CONTENTION or not case.input_bound:
        return
    here, cores, fit = ranks_per_host(case.ranks), cores_of_host(case.ranks), workers_that_fit(case.ranks)
    slower = f"A batch takes the loader {gain(found.ratio.estimate)} as long when all ranks load as alone"
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
        why=f"{slower}.{_CONTENDED.get(found.what or '', '')}",
        how=_LESS.get(found.what or "", _WORK_LESS),
        evidence={**numbers, "num_workers": case.workers},
    )


@rule("rank-affinity")
def _affinity(case: Case) -> Iterator[Suggestion]:
    """Advise to let ranks run on all cores where they are bound to fewer than their workers could use."""
    here, cores, all_cores = (
        ranks_per_host(case.ranks),
        cores_of_host(case.ranks),
        setting(case.environment, "cpu_cores"),
    )
    narrowest = min((rank.cores for rank in case.ranks if rank.cores), default=None)
    if cores is None or narrowest is None or all_cores is None or not (case.input_bound and case.workers):
        return
    if cores >= all_cores or narrowest > case.workers:
        return
    yield Suggestion(
        title="Let the ranks run on all cores of their host",
        why=f"A rank with {plural(int(case.workers), 'worker')} may run on {plural(narrowest, 'core')}, and "
        f"{plural(here, 'rank')} of a host on {cores:,} of its {number(all_cores)}. mpirun binds a rank to a core "
        "unless it is told otherwise; srun and the cpuset of a container can do so too.",
        how="mpirun --bind-to none ...  # srun --cpu-bind=none ...",
        evidence={
            "num_workers": case.workers, "affinity_cores": narrowest, "cores": cores, "cpu_cores": all_cores,
            "ranks_per_host": here,
        },
    )  # fmt: skip


@rule("omp-threads")
def _omp_threads(case: Case) -> Iterator[Suggestion]:
    """Advise more threads where the launcher allowed one, and the main process does the work."""
    here, cores = ranks_per_host(case.ranks), cores_of_host(case.ranks)
    threads, world = setting(case.environment, "torch_threads"), case.evidence.ranks.world or 1
    main_works = case.on_cpu or (case.number("num_workers") == 0 and case.input_bound)
    if world < 2 or threads != 1 or not main_works or cores is None or not here:
        return
    fit = math.floor(cores / (here * (1 + case.workers)))
    if fit < _LEAST_THREADS:
        return
    yield Suggestion(
        title=f"Let each rank compute with {fit} threads",
        why=f"Each rank's main process computes with 1 thread, which is what torchrun sets where OMP_NUM_THREADS is "
        f"not set; {plural(here, 'rank')} of a host share {cores:,} cores.",
        how=f"OMP_NUM_THREADS={fit} torchrun ...",
        evidence={"torch_threads": 1, "proposed": {"torch_threads": fit}, "ranks_per_host": here, "cores": cores},
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
        "where gradients are shared, the one waits at the end for steps that the other never makes.",
        how="DataLoader(..., sampler=DistributedSampler(dataset, drop_last=True), drop_last=True)",
        evidence={"most_batches": steps[most], "fewest_batches": steps[fewest], "rank": fewest},
    )


@rule("share-less", "share-by-nccl")
def _sync(case: Case) -> Iterator[Suggestion]:
    """Advise to share gradients less often, or fewer bytes of them."""
    together, gained = case.evidence.ranks, sync_gain(case.evidence.ranks)
    if gained is None:
        return
    cost_s = together.sync.cost_s_per_batch
    takes = f"takes {duration(cost_s)} of each {duration(case.step_s)} step" if cost_s else "takes part of each step"
    numbers = {"sync_s_per_batch": cost_s, "step_s": case.step_s, "gain": gained.estimate, "backend": together.backend}
    if together.backend == "gloo" and case.on_cuda:
        yield Suggestion(
            id="share-by-nccl",
            title="Share gradients by NCCL instead of Gloo",
            why=f"Sharing gradients {takes}: Gloo copies them to host memory and back.",
            how='torch.distributed.init_process_group("nccl")',
            evidence=numbers,
            gain=gained,
        )
        return
    yield Suggestion(
        title="Share gradients less often, or fewer bytes of them",
        why=f"Sharing gradients {takes}; without it the job makes {gain(gained.estimate)} the throughput. In bfloat16 "
        "it moves half of the bytes, with 4 steps of accumulation a quarter of them.",
        how="from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
        "model = DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)\n"
        "model.register_comm_hook(None, default_hooks.bf16_compress_hook)  # or model.no_sync() in 3 of 4 steps",
        evidence=numbers,
        gain=1 / (1 - _COMPRESSED * (1 - 1 / gained.estimate)),
    )


RULES = (_straggler, _contention, _affinity, _omp_threads, _uneven_shards, _sync)
