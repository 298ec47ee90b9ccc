"""Jobs of many ranks: one that holds the others, contention, shards, and sharing gradients."""

from dataclasses import replace

from bottleneck.results.evidence import Contention, RanksTogether, Straggler, Sync
from bottleneck.results.records import Interval, Result
from tests.analysis.rule_case import RuleCase, held_by
from tests.analysis.simulated import DEVICE_BOUND, Job, measure
from tests.support.rank_results import make_rank, make_ranks


def of_ranks(job: Job, *, world: int = 4, **together: object) -> Result:
    """The job as one of many ranks on one host of 8 cores, with what was measured of them together."""
    measured = measure(job)
    ranks = tuple(make_rank(number, cores=8, cores_of_host=8) for number in range(world))
    known = RanksTogether(world=world, hosts=1, backend="nccl", **together)
    return replace(measured, ranks=ranks, evidence=replace(measured.evidence, ranks=known))


def straggling(gain: Interval, stage: str = "load") -> Result:
    held = Straggler(rank=3, host="node-0", device="cuda:3", stage=stage, gain=gain)
    measured = of_ranks(held_by("load"), straggler=held)
    return replace(measured, ranks=make_ranks(4, slow=3))


def contending(ratio: Interval, what: str | None = "cores", workers: int = 4) -> Result:
    job = held_by("load", pipeline={"num_workers": workers})
    return of_ranks(job, contention=Contention(ratio=ratio, what=what))


def shards(last: int) -> Result:
    measured = of_ranks(DEVICE_BOUND)
    job = replace(measured, pipeline={"batch_size": 32})
    return replace(job, ranks=(*job.ranks[:-1], make_rank(3, samples_per_epoch=last)))


def sharing(gain: Interval, **others: object) -> Result:
    job = replace(DEVICE_BOUND, environment={"device": "cuda:0"})
    sync = Sync(cost_s_per_batch=0.008, gain_if_free=gain)
    return of_ranks(job, sync=sync, **others)


SURE, UNSURE = Interval(1.3, 1.2, 1.4), Interval(1.3, 0.9, 1.7)
_OTHER = Straggler(rank=1, host="node-0", device="cuda:1", stage="compute", gain=Interval(1.35, 1.3, 1.4))

CASES = [
    RuleCase("straggler", straggling(SURE), straggling(UNSURE)),
    RuleCase("straggler", straggling(SURE, "compute"), straggling(Interval(1.04, 1.03, 1.05), "compute")),
    RuleCase("straggler", straggling(SURE, "augment"), straggling(Interval(1.04, 1.03, 1.05), "augment")),
    RuleCase("rank-contention", contending(Interval(1.9, 1.8, 2.0)), contending(Interval(1.02, 1.01, 1.03))),
    RuleCase("rank-contention", contending(SURE, "disk"), contending(UNSURE, "disk")),
    RuleCase("rank-contention", contending(SURE, "memory"), contending(UNSURE, "memory")),
    RuleCase("rank-contention", contending(SURE, "network"), contending(UNSURE, "network")),
    RuleCase("rank-contention", contending(SURE, workers=1), contending(UNSURE, workers=1)),
    RuleCase("uneven-shards", shards(80_033), shards(80_000)),
    RuleCase("share-less", sharing(SURE), sharing(Interval(1.05, 1.03, 1.07))),
    # Without sharing no rank waits for another: that gain may be the straggler's.
    RuleCase("share-less", sharing(Interval(2.0, 1.9, 2.1), straggler=_OTHER), sharing(SURE, straggler=_OTHER)),
]
