"""Planted jobs of several ranks are judged by what they say, and by the plain loops of the slowest rank."""

from types import SimpleNamespace

import pytest

from benchmarks.ranks import JOBS, Run, check_runs
from bottleneck.results.records import Interval

PLANTED = {job.name: job for job in JOBS}


def found(
    state="device_bound",
    bottleneck="compute",
    straggler=None,
    ranks=(),
    stage=None,
    sync_s=None,
    ratio=None,
    what=None,
    advice=(),
    raw_s=0.05,
):
    """What is looked at of a result."""
    held = None if straggler is None else SimpleNamespace(rank=straggler, stage=stage, ranks=ranks)
    together = SimpleNamespace(
        straggler=held,
        contention=SimpleNamespace(ratio=ratio, what=what),
        sync=SimpleNamespace(cost_s_per_batch=sync_s),
    )
    return SimpleNamespace(
        verdict=SimpleNamespace(state=state, bottleneck=bottleneck, straggler=straggler),
        evidence=SimpleNamespace(ranks=together),
        advice=[SimpleNamespace(id=name) for name in advice],
        experiments=[SimpleNamespace(name="raw", coupled=SimpleNamespace(seconds_per_batch=raw_s))],
    )


def run(name, **said):
    loop = {"real_s": 0.05, "cached_s": 0.05, "unshared_s": 0.01}
    return Run(PLANTED[name], found(**said), ((loop, loop), ({**loop, "unshared_s": 0.02}, loop)))


RIGHT = {
    "even": {},
    "slow_loader": {"straggler": 2, "stage": "load"},
    "slow_loaders": {"straggler": 1, "ranks": (1, 3), "stage": "load"},
    "slow_step": {"straggler": 1, "stage": "compute"},
    "slow_sync": {"bottleneck": "sync"},
    "one_core": {"ratio": Interval(2.0, 1.9, 2.1), "what": "cores", "advice": ("rank-contention",)},
    "one_memory": {
        "state": "input_bound",
        "ratio": Interval(1.3, 1.2, 1.4),
        "what": "memory",
        "advice": ("rank-contention",),
    },
    "one_disk": {"ratio": Interval(3.0, 2.9, 3.1), "advice": ("rank-contention",)},
    "uneven": {"advice": ("uneven-shards",)},
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_job_is_right_only_by_what_was_planted_in_it(name):
    assert run(name, **RIGHT[name]).right
    others = [RIGHT[one] for one in ("slow_loader", "slow_loaders", "slow_step", "slow_sync", "one_memory")]
    assert not any(run(name, **said).right for said in others if said is not RIGHT[name])


def test_the_slowest_rank_says_what_sharing_costs():
    assert run("slow_sync").sync_s == pytest.approx(0.05 - 0.015)


@pytest.mark.parametrize(("cost_s", "held"), [(0.034, True), (0.040, False), (None, False)])
def test_the_cost_of_sharing_is_held_against_plain_loops(cost_s, held):
    checks = check_runs([run("slow_sync", bottleneck="sync", sync_s=cost_s)])
    assert checks[1].held == held


@pytest.mark.parametrize(("raw_s", "held"), [(0.0505, True), (0.052, False)])
def test_a_diagnosis_that_slows_the_job_down_is_off(raw_s, held):
    checks = check_runs([run("even", raw_s=raw_s)])
    assert (checks[0].held, checks[2].held) == (True, held)
