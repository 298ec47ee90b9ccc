"""Builds results of jobs of many ranks: fixed numbers, no clock, no randomness."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bottleneck.analysis.ranks import straggler_sentence, sync_sentence
from bottleneck.results.evidence import Contention, RanksTogether, Straggler, Sync
from bottleneck.results.records import Interval, Rank, RankExperiment, Result
from tests.support.results_factory import (
    COUPLED_S_PER_BATCH,
    DRAINED_S_PER_BATCH,
    make_blocks,
    make_device_bound_result,
    make_result,
)

PER_HOST = 8
SLOW = 5
"""The rank whose loader is slow."""
SYNC = Sync(cost_s_per_batch=0.0011, gain_if_free=Interval(1.046, 1.031, 1.061))


def make_rank(number: int, slowness: float = 1.0, per_host: int = PER_HOST, **changes: Any) -> Rank:
    """A rank whose loader alone takes `slowness` times as long as usual."""
    experiments = tuple(_experiment(name, slowness) for name in COUPLED_S_PER_BATCH)
    wait_s = 0.0002 if slowness < 1.5 else 0.0151
    return replace(
        Rank(
            rank=number, host=f"node-{number // per_host}", device=f"cuda:{number % per_host}",
            local_rank=number % per_host, cores=32, cores_of_host=32, num_workers=4,
            samples_per_epoch=80000, experiments=experiments, wait_s_per_batch=wait_s,
            step_s_per_batch=0.0247 - wait_s, alone_s_per_batch=0.0081 * slowness,
            stage="augment",
        ),
        **changes,
    )  # fmt: skip


def _experiment(name: str, slowness: float) -> RankExperiment:
    coupled_s, drained_s = COUPLED_S_PER_BATCH[name], DRAINED_S_PER_BATCH.get(name)
    drained_s = None if drained_s is None else drained_s * slowness / 3
    drained = () if drained_s is None else make_blocks(drained_s)
    return RankExperiment(name, coupled_s, drained_s, make_blocks(coupled_s), drained)


def make_ranks(world: int = 16, slow: int = SLOW) -> tuple[Rank, ...]:
    """Ranks whose loaders take about the same, but for one whose loader takes three times as long."""
    ranks = [make_rank(number, 3.0 if number == slow else 1 + number % 7 / 100) for number in range(world)]
    ranks[slow] = replace(ranks[slow], held=Interval(2.31, 2.21, 2.41))
    return tuple(rank if rank.rank in (2, slow, world - 2) else rank.without_blocks() for rank in ranks)


def make_together(world: int = 16, slow: int = SLOW, **changes: Any) -> RanksTogether:
    """Return measurements of such a job as a whole."""
    rank = make_rank(slow)
    straggler = Straggler(
        rank=slow, host=rank.host, device=rank.device, stage="augment", gain=Interval(2.31, 2.21, 2.41)
    )
    together = RanksTogether(
        world=world, hosts=-(-world // PER_HOST), backend="nccl", sync=SYNC, straggler=straggler,
        contention=Contention(ratio=Interval(1.04, 1.01, 1.07)),
    )  # fmt: skip
    return replace(together, **changes)


def make_ranks_result(world: int = 16, slow: int = SLOW, **changes: Any) -> Result:
    """A job of many ranks, which one of them holds by its augmentation."""
    result = make_result(ranks=make_ranks(world, slow))
    evidence = replace(result.evidence, ranks=make_together(world, slow))
    sentence = f"{straggler_sentence(evidence.ranks)} {result.verdict.sentence}"
    verdict = replace(result.verdict, straggler=slow, sentence=sentence)
    return replace(result, **{"evidence": evidence, "verdict": verdict, **changes})


def make_sync_bound_result() -> Result:
    """A job that shares gradients half of its time, with no rank slower than another."""
    result = make_device_bound_result()
    together = make_together(
        sync=Sync(cost_s_per_batch=0.0246, gain_if_free=Interval(1.94, 1.88, 2.01)), straggler=None, backend="gloo"
    )
    ranks = tuple(make_rank(number, device="cpu") for number in range(16))
    sentence = (
        f"{sync_sentence(together)} Bottleneck: sync. In addition, the input pipeline costs 1.2 % (0.4–2.0 %) "
        "of its throughput."
    )
    verdict = replace(result.verdict, bottleneck="sync", sentence=sentence)
    return replace(result, ranks=ranks, evidence=replace(result.evidence, ranks=together), verdict=verdict)
