"""What trials on ranks say: the cost of sharing gradients, the rank that holds the others, contention."""

from dataclasses import replace

import pytest

from bottleneck.analysis.rank_trials import compare_ranks
from bottleneck.analysis.ranks import straggler_sentence
from bottleneck.measure.ranks.trials import wait_most
from bottleneck.results.evidence import Cores, ExperimentUsage, Payload, Utilisation
from bottleneck.results.names import COMPUTE
from bottleneck.results.rank_trials import RankTrial, RankTrials
from bottleneck.results.ranks import Rank, RankExperiment
from bottleneck.results.records import Block, Interval, Stage
from tests.analysis.simulated import DEVICE_BOUND, measure

ROUNDS = 5
SURE = Interval(0.98, 0.97, 0.99)
"""An efficiency with little to gain from the input."""


def blocks(s_per_batch, rounds=ROUNDS):
    """Blocks of ten batches that are up to one percent quicker or slower, round by round."""
    return tuple(Block(n, 40, 10 * s_per_batch * (1 + 0.005 * (n % 3 - 1)), 10) for n in range(rounds))


def trials(times, freed=()):
    """Trials from times per batch, by what was tried: of one rank, or of several in their order."""
    found = []
    for name, given in times.items():
        for rank, s_per_batch in enumerate(given if isinstance(given, tuple) else (given,)):
            if s_per_batch is not None:
                found.append(RankTrial(name, rank, blocks(s_per_batch)))
    return RankTrials(tuple(found), freed)


def measured(times, freed=(), world=2, **of_ranks):
    ranks = tuple(Rank(rank=n, host=f"node-{n}", device=f"cuda:{n}", **of_ranks) for n in range(world))
    return replace(measure(DEVICE_BOUND), ranks=ranks), trials(times, freed)


def together(times, efficiency=SURE, **changes):
    return compare_ranks(*measured(times, **changes), efficiency).evidence.ranks


def test_a_single_process_stays_as_it_is():
    alone = measure(DEVICE_BOUND)
    assert compare_ranks(alone, RankTrials(), SURE) is alone


def test_what_sharing_costs_is_measured_against_the_slowest_rank():
    # Guards: a rank that waits for a slow one would count that as the cost of sharing gradients.
    found = together(
        {"device": (0.050, 0.050), "device-unshared": (0.020, 0.045), "raw": 0.050, "raw-unshared": (0.020, 0.045)}
    )
    assert found.sync.cost_s_per_batch == pytest.approx(0.005, rel=0.05)
    assert found.sync.gain_if_free.estimate == pytest.approx(50 / 45, rel=0.01)


def test_a_cost_that_is_lost_in_the_noise_of_the_step_is_not_told():
    # Guards: on a busy machine an even job was said to take 18 ms to share gradients, where plain loops say 8.
    noisy = trials({"device": (0.050, 0.050), "device-unshared": (0.045, 0.045)})
    shaken = tuple(
        replace(
            trial,
            blocks=tuple(replace(b, seconds=b.seconds * (1 + 0.2 * (b.round % 2 - 0.5))) for b in trial.blocks),
        )
        if trial.name == "device"
        else trial
        for trial in noisy.trials
    )
    found = compare_ranks(measured({})[0], replace(noisy, trials=shaken), SURE).evidence.ranks
    assert found.sync.cost_s_per_batch is None
    assert found.sync_reason == "it was not measured precisely enough"


def test_a_cost_that_is_surely_small_is_told():
    found = together({"device": (0.050, 0.050), "device-unshared": (0.0499, 0.0499)})
    assert found.sync.cost_s_per_batch == pytest.approx(0.0001, abs=0.0005)


def test_a_rank_with_a_slow_loader_holds_the_others():
    found = together({"raw": 0.040, "raw-freed": 0.025, "raw-held": 0.040}, freed=(1,))
    assert (found.straggler.rank, found.straggler.host) == (1, "node-1")
    assert found.straggler.gain.estimate == pytest.approx(1.6, rel=0.01)


def test_a_rank_whose_loader_is_slow_beside_the_others_only_holds_nobody():
    # Guards: where four loaders share a disk, freeing any of them makes the others faster.
    assert together({"raw": 0.080, "raw-freed": 0.060, "raw-held": 0.050}, freed=(1,)).straggler is None


def test_a_rank_with_a_slow_step_holds_the_others():
    found = together({"raw": 0.045, "device": (0.044, 0.044), "device-unshared": (0.022, 0.042)})
    assert (found.straggler.rank, found.straggler.stage) == (1, COMPUTE)
    assert found.straggler.gain.estimate == pytest.approx(45 / 25, rel=0.02)


def test_ranks_that_load_slowly_alike_hold_the_others_together():
    found = together({"raw": 0.040, "raw-freed": 0.025, "raw-held": 0.040}, freed=(3, 1), world=4)
    assert (found.straggler.rank, found.straggler.ranks) == (3, (1, 3))
    assert straggler_sentence(replace(found, world=4)).startswith("Ranks 1 and 3 hold all 4 ranks")


def test_ranks_whose_steps_are_slow_alike_hold_the_others_together():
    # Guards: beside one that is as slow, no rank gains anything by the step of the next one.
    times = {"raw": 0.045, "device": (0.044,) * 4, "device-unshared": (0.022, 0.0421, 0.022, 0.042)}
    found = together(times, world=4)
    assert (found.straggler.rank, found.straggler.ranks, found.straggler.stage) == (1, (1, 3), COMPUTE)
    assert found.straggler.gain.estimate == pytest.approx(45 / 25, rel=0.02)


def test_most_ranks_do_not_hold_one_that_is_quick():
    times = {"raw": 0.045, "device": (0.044,) * 4, "device-unshared": (0.022, 0.042, 0.042, 0.042)}
    found = together(times, world=4)
    assert found.straggler is None or found.straggler.gain.low < 1.02


def test_a_slow_step_holds_nobody_in_a_job_that_waits_for_data():
    times = {"raw": 0.090, "device": (0.044, 0.044), "device-unshared": (0.042, 0.022)}
    assert together(times, efficiency=Interval(0.49, 0.48, 0.5)).straggler is None


def test_ranks_that_are_alike_have_no_straggler_of_note():
    found = together(
        {
            "raw": 0.030,
            "raw-freed": 0.030,
            "raw-held": 0.030,
            "device": (0.03, 0.03),
            "device-unshared": (0.029, 0.029),
        },
        freed=(0,),
    )
    assert found.straggler is None or found.straggler.gain.low < 1.02


def test_contention_is_of_the_rank_that_was_tried_alone():
    found = together({"loaders": (0.010, 0.030), "loader-alone": (None, 0.020)}, freed=(1,))
    assert found.contention.ratio.estimate == pytest.approx(1.5, rel=0.01)


def test_without_trials_nothing_is_known():
    found = together({"loaders": 0.01})
    assert (found.sync.cost_s_per_batch, found.sync.gain_if_free, found.straggler) == (None, None, None)
    assert found.contention.ratio is None


@pytest.mark.parametrize(
    ("used", "what"),
    [
        ({"cores_main": 0.1, "cores_workers": 1.9, "cores_other": 2.0, "cores_busy": 4.0}, "cores"),
        ({"throttled_share": 0.4}, "cores"),
        ({"cores_busy": 1.0, "disk_busy_share": 0.98, "disk_requests_in_flight": 9.0}, "disk"),
        ({"cores_busy": 1.0, "disk_busy_share": 0.2}, None),
    ],
)
def test_loaders_contend_for_what_they_use_up_together(used, what):
    before, told = measured({"loaders": 0.03, "loader-alone": 0.02})
    usage = Utilisation(
        cores=Cores(allowed=4, quota=4.0), experiments=(ExperimentUsage(name="raw", mode="drained", **used),)
    )
    before = replace(before, evidence=replace(before.evidence, utilisation=usage))
    assert compare_ranks(before, told, SURE).evidence.ranks.contention.what == what


@pytest.mark.parametrize(
    ("cpu_s", "network_bytes", "what"),
    [
        ((1.0, 1.0), (None, None), "disk"),
        ((1.0, 1.45), (None, None), "memory"),  # 10 batches in each of 5 rounds take 0.5 s longer
        ((1.0, 1.1), (None, None), "disk"),
        ((None, 1.45), (None, None), "disk"),
    ],
)
def test_what_workers_compute_longer_is_told_from_waiting(cpu_s, network_bytes, what):
    usage = ExperimentUsage(name="raw", mode="drained", disk_busy_share=0.98, disk_requests_in_flight=9.0)
    assert contended(cpu_s, network_bytes, Utilisation(experiments=(usage,))) == what


@pytest.mark.parametrize(
    ("network_bytes", "what"),
    [
        ((50e6, 52e6), "network"),  # in 1.0 s alone, and in 1.5 s
        ((50e6, 99e6), None),  # a link that carries more for all than for one
        ((1e3, 1e3), None),  # next to nothing of a batch
        ((None, 52e6), None),
    ],
)
def test_a_host_that_receives_no_more_for_all_than_for_one_has_used_up_its_network(network_bytes, what):
    assert contended((1.0, 1.0), network_bytes, Utilisation()) == what


def contended(cpu_s, network_bytes, utilisation):
    """What is found of two ranks with a worker each, by what one of them used alone and beside the other."""
    before, told = measured({"loader-alone": 0.02, "loaders": 0.03}, num_workers=1)
    counted = zip(told.trials, cpu_s, network_bytes, strict=True)
    tried = tuple(replace(trial, cpu_s=cpu, network_bytes=nbytes) for trial, cpu, nbytes in counted)
    evidence = replace(before.evidence, utilisation=utilisation, payload=Payload(bytes=1e6))
    return compare_ranks(replace(before, evidence=evidence), RankTrials(tried), SURE).evidence.ranks.contention.what


def test_a_rank_is_told_with_the_stage_that_costs_its_loader_the_most():
    own = (RankExperiment("after_augment", None, 0.004), RankExperiment("before_augment", None, 0.019))
    before, told = measured({"raw": 0.03}, experiments=own)
    spans = (
        Stage.between("finish", None, "after_augment"),
        Stage.between("augment", "after_augment", "before_augment"),
    )
    assert [rank.stage for rank in compare_ranks(replace(before, stages=spans), told, SURE).ranks] == [
        "augment",
        "augment",
    ]


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
