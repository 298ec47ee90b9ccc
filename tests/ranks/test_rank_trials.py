"""Trials on ranks: the cost of sharing gradients, the rank that holds up the others, contention."""

from dataclasses import replace

import pytest

from bottleneck.analysis.rank_trials import compare_ranks
from bottleneck.analysis.ranks import straggler_sentence
from bottleneck.measure.ranks.team import wait_most
from bottleneck.results.evidence import Cores, ExperimentUsage, Payload, Utilisation
from bottleneck.results.names import COMPUTE
from bottleneck.results.records import Block, Interval, Rank, RankExperiment, RankTrial, RankTrials, Stage
from tests.analysis.simulated import DEVICE_BOUND, measure

ROUNDS = 5
SURE = Interval(0.98, 0.97, 0.99)
"""An efficiency with little to gain from the input."""


def trial(name, rank, s_per_batch, noise=0.005):
    """Blocks of ten batches that are up to one percent quicker or slower, round by round."""
    blocks = [Block(n, 40, 10 * s_per_batch * (1 + noise * (n % 3 - 1)), 10) for n in range(ROUNDS)]
    return RankTrial(name, rank, tuple(blocks))


def measured(times, freed=(), world=2, noise=None, **of_ranks):
    """A job of many ranks, by times per batch of each trial: of rank 0, or of several ranks in their order."""
    ranks = tuple(Rank(rank=n, host=f"node-{n}", device=f"cuda:{n}", **of_ranks) for n in range(world))
    trials = [
        trial(name, rank, seconds, (noise or {}).get(name, 0.005))
        for name, given in times.items()
        for rank, seconds in enumerate(given if isinstance(given, tuple) else (given,))
        if seconds is not None
    ]
    return replace(measure(DEVICE_BOUND), ranks=ranks), RankTrials(tuple(trials), freed)


def together(times, efficiency=SURE, **changes):
    return compare_ranks(*measured(times, **changes), efficiency).evidence.ranks


def test_a_single_process_stays_as_it_is():
    alone = measure(DEVICE_BOUND)
    assert compare_ranks(alone, RankTrials(), SURE) is alone


# --- sharing gradients ------------------------------------------------------------------------------------


def test_what_sharing_costs_is_measured_against_the_slowest_rank():
    # Guards: a rank that waits for a slow one would count that as the cost of sharing gradients.
    found = together(
        {"device": (0.050, 0.050), "device-unshared": (0.020, 0.045), "raw": 0.050, "raw-unshared": (0.020, 0.045)}
    )
    assert found.sync.cost_s_per_batch == pytest.approx(0.005, rel=0.05)
    assert found.sync.gain_if_free.estimate == pytest.approx(50 / 45, rel=0.01)


def test_a_cost_that_is_lost_in_the_noise_of_the_step_is_not_told():
    # Guards: on a busy machine an even job was said to take 18 ms to share gradients, where plain loops say 8.
    found = together({"device": (0.050, 0.050), "device-unshared": (0.045, 0.045)}, noise={"device": 0.1})
    assert found.sync.cost_s_per_batch is None
    assert found.sync_reason == "it was not measured precisely enough"


def test_a_cost_that_is_clearly_small_is_told():
    found = together({"device": (0.050, 0.050), "device-unshared": (0.0499, 0.0499)})
    assert found.sync.cost_s_per_batch == pytest.approx(0.0001, abs=0.0005)


# --- the ranks that hold the others -----------------------------------------------------------------------

ONE_LOADS_SLOWLY = {"raw": 0.040, "raw-freed": 0.025, "raw-held": 0.040}
ONE_STEPS_SLOWLY = {"raw": 0.045, "device": (0.044, 0.044), "device-unshared": (0.022, 0.042)}
TWO_STEP_SLOWLY = {"raw": 0.045, "device": (0.044,) * 4, "device-unshared": (0.022, 0.0421, 0.022, 0.042)}


@pytest.mark.parametrize(
    ("times", "job", "rank", "ranks", "stage", "gain"),
    [
        (ONE_LOADS_SLOWLY, {"freed": (1,)}, 1, (), None, 1.6),
        (ONE_LOADS_SLOWLY, {"freed": (3, 1), "world": 4}, 3, (1, 3), None, 1.6),
        (ONE_STEPS_SLOWLY, {}, 1, (), COMPUTE, 45 / 25),
        # Guards: where another one is as slow, no rank gains anything by the step of the next one.
        (TWO_STEP_SLOWLY, {"world": 4}, 1, (1, 3), COMPUTE, 45 / 25),
    ],
    ids=["loader", "loaders", "step", "steps"],
)
def test_ranks_that_hold_the_others_are_named_by_what_is_slow(times, job, rank, ranks, stage, gain):
    found = together(times, **job)
    held = found.straggler
    assert (held.rank, held.host, held.ranks, held.stage) == (rank, f"node-{rank}", ranks, stage)
    assert held.gain.estimate == pytest.approx(gain, rel=0.02)
    who = (
        "Ranks 1 and 3 slow down all 4 ranks"
        if ranks
        else f"Rank {rank} on node-{rank} (cuda:{rank}) slows down all 2 ranks"
    )
    assert straggler_sentence(replace(found, world=job.get("world", 2))).startswith(who)


@pytest.mark.parametrize(
    ("times", "job"),
    [
        # Guards: where four loaders share a disk, freeing any of them makes the others faster.
        ({"raw": 0.080, "raw-freed": 0.060, "raw-held": 0.050}, {"freed": (1,)}),
        ({"raw": 0.045, "device": (0.044,) * 4, "device-unshared": (0.022, 0.042, 0.042, 0.042)}, {"world": 4}),
        (
            {"raw": 0.090, "device": (0.044, 0.044), "device-unshared": (0.042, 0.022)},
            {"efficiency": Interval(0.49, 0.48, 0.5)},
        ),
        (
            {
                **{"raw": 0.030, "raw-freed": 0.030, "raw-held": 0.030},
                **{"device": (0.03, 0.03), "device-unshared": (0.029, 0.029)},
            },
            {"freed": (0,)},
        ),
        ({"loaders": 0.01}, {}),
    ],
    ids=["slow because all load", "most are slow", "waits for data", "all the same", "not measured"],
)
def test_no_rank_is_named_that_does_not_hold_the_others(times, job):
    found = together(times, **job).straggler
    assert found is None or found.gain.low < 1.02


@pytest.mark.parametrize(
    ("waits_ms", "freed"),
    [
        ((0, 20, 0, 0), (1,)),
        ((0, 20, 0, 15), (1, 3)),
        ((0, 20, 5, 0), (1,)),
        ((20, 19, 18, 21), (3,)),  # the job's loader is slow, and no rank of it
        ((0.5, 0.1, 0.2, 0.1), ()),
        ((None, None, None, None), ()),
    ],
)
def test_the_ranks_that_wait_the_longest_are_freed_up_to_half_of_them(waits_ms, freed):
    raw = (RankExperiment("raw", 0.05, 0.02),)
    ranks = [
        Rank(rank=n, host="one", device="cpu", experiments=raw, wait_s_per_batch=None if ms is None else ms / 1e3)
        for n, ms in enumerate(waits_ms)
    ]
    assert wait_most(ranks) == freed


def test_a_rank_is_told_with_the_stage_that_costs_its_loader_the_most():
    own = (RankExperiment("after_augment", None, 0.004), RankExperiment("before_augment", None, 0.019))
    before, trials = measured({"raw": 0.03}, experiments=own)
    stages = Stage.between("finish", None, "after_augment"), Stage.between("augment", "after_augment", "before_augment")
    found = compare_ranks(replace(before, stages=stages), trials, SURE)
    assert [rank.stage for rank in found.ranks] == ["augment", "augment"]


# --- contention -------------------------------------------------------------------------------------------


def test_contention_is_of_the_rank_whose_loader_ran_alone():
    found = together({"loaders": (0.010, 0.030), "loader-alone": (None, 0.020)}, freed=(1,))
    assert found.contention.ratio.estimate == pytest.approx(1.5, rel=0.01)
    assert together({"loaders": 0.01}).contention.ratio is None


BUSY_DISK = {"disk_busy_share": 0.98, "disk_requests_in_flight": 9.0}


@pytest.mark.parametrize(
    ("used", "cpu_s", "network_bytes", "what"),
    [
        ({"cores_main": 0.1, "cores_workers": 1.9, "cores_other": 2.0, "cores_busy": 4.0}, (), (), "cores"),
        ({"throttled_share": 0.4}, (), (), "cores"),
        ({"cores_busy": 1.0, **BUSY_DISK}, (), (), "disk"),
        ({"cores_busy": 1.0, "disk_busy_share": 0.2}, (), (), None),
        # What a batch takes longer is CPU time: 10 batches in each of 5 rounds take 0.5 s longer.
        (BUSY_DISK, (1.0, 1.0), (), "disk"),
        (BUSY_DISK, (1.0, 1.1), (), "disk"),
        (BUSY_DISK, (None, 1.45), (), "disk"),
        (BUSY_DISK, (1.0, 1.45), (), "memory"),
        # A host that receives no more for all loaders than for one: in 1.0 s alone, and in 1.5 s.
        ({}, (1.0, 1.0), (50e6, 52e6), "network"),
        ({}, (1.0, 1.0), (50e6, 99e6), None),
        ({}, (1.0, 1.0), (1e3, 1e3), None),  # next to nothing of a batch
        ({}, (1.0, 1.0), (None, 52e6), None),
    ],
)
def test_loaders_contend_for_what_they_use_up_together(used, cpu_s, network_bytes, what):
    before, trials = measured({"loader-alone": 0.02, "loaders": 0.03}, num_workers=1)
    counted = zip(trials.trials, cpu_s or (None, None), network_bytes or (None, None), strict=True)
    tried = tuple(replace(trial, cpu_s=cpu, network_bytes=nbytes) for trial, cpu, nbytes in counted)
    usage = Utilisation(
        cores=Cores(allowed=4, quota=4.0), experiments=(ExperimentUsage(name="raw", mode="drained", **used),)
    )
    evidence = replace(before.evidence, utilisation=usage, payload=Payload(bytes=1e6))
    found = compare_ranks(replace(before, evidence=evidence), RankTrials(tried), SURE)
    assert found.evidence.ranks.contention.what == what
