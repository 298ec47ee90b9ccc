import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bottleneck.analysis.attribution import attribute, drop, drop_confidence, with_family_gains
from bottleneck.analysis.costs import Costs
from bottleneck.analysis.readings import experiments, read
from bottleneck.analysis.statistics import t_quantile
from bottleneck.results.records import Block, Experiment, Rate, Stage, Without
from tests.analysis.simulated import (
    AUGMENT_BOUND,
    BATCH_SIZE,
    LAST_STRAW,
    Job,
    keep_rounds,
    map_blocks,
    map_coupled,
    measure,
)


def stages_of(measurement):
    readings = read(measurement)
    return {stage.name: stage for stage in attribute(readings, Costs(readings))}


def test_the_truth_is_recovered_exactly_without_noise():
    stages = stages_of(measure(AUGMENT_BOUND, noise=0))

    assert list(stages) == ["compute", "copy", "handoff", "collate", "augment", "load"]
    exposed_s = [stage.exposed_s_per_batch.estimate for stage in stages.values()]
    assert exposed_s == pytest.approx([0.0094, 0.0001, 0.0002, 0.0001, 0.0130, 0.0019])
    cost_s = [stage.cost_s_per_batch.estimate for stage in stages.values()]
    assert cost_s == pytest.approx([0.0094, 0.0001, 0.0012, 0.0009, 0.0204, 0.0021])
    assert stages["augment"].gain_if_free.estimate == pytest.approx(0.0247 / 0.0105)
    assert stages["compute"].gain_if_free is None
    assert [name for name, stage in stages.items() if stage.finding == "real"] == ["compute", "augment", "load"]
    assert {stages[name].finding for name in ("copy", "handoff", "collate")} == {"within_noise"}


def test_exposed_shares_add_up_to_one():
    stages = stages_of(measure(AUGMENT_BOUND, noise=0.2, drift=0.2))

    assert sum(s.exposed_share.estimate for s in stages.values()) == pytest.approx(1)


@cache
def augment_of_many_runs():
    return [stages_of(measure(LAST_STRAW, noise=0.03, drift=0.1, seed=seed))["augment"] for seed in range(300)]


@pytest.mark.parametrize("quantity", ["cost_s_per_batch", "exposed_s_per_batch", "exposed_share"])
def test_intervals_of_a_stage_cover_the_truth(quantity):
    truth = {
        "cost_s_per_batch": 0.0178 - 0.0032,
        "exposed_s_per_batch": 0.0176 - 0.0171,
        "exposed_share": (0.0176 - 0.0171) / 0.0217,
    }[quantity]
    intervals = [getattr(stage, quantity) for stage in augment_of_many_runs()]
    covered = sum(interval.low <= truth <= interval.high for interval in intervals)

    assert 0.9 <= covered / 300 <= 0.99


def test_no_drop_of_a_flat_ladder_is_called_real_more_often_than_promised():
    flat = Job(coupled=dict.fromkeys(AUGMENT_BOUND.coupled, 0.01))
    false_alarms = 0
    for seed in range(300):
        stages = stages_of(measure(flat, noise=0.04, drift=0.2, seed=seed))
        false_alarms += any(s.finding == "real" for name, s in stages.items() if name != "compute")

    assert false_alarms / 300 <= 0.05


def test_a_drop_is_found_through_drift_that_is_larger_than_it():
    stages = stages_of(measure(AUGMENT_BOUND, noise=0.005, drift=0.3))

    assert stages["load"].finding == "real"
    assert stages["handoff"].finding == "within_noise"


def test_a_finding_and_a_share_are_of_the_same_numbers_where_blocks_stall():
    # Guards: the mean of the rounds' logarithms called a drop noise whose share, a ratio of sums, was 16 % of the step.
    def stalled(experiment):
        slow = 2.5 if experiment.name == "raw" else 0.0
        blocks = experiment.coupled.blocks
        return Rate.of(tuple(replace(b, seconds=b.seconds * (1 + slow * (b.round == 3))) for b in blocks))

    readings = read(map_coupled(measure(AUGMENT_BOUND, noise=0.001, rounds=8), stalled))
    (load,) = (span for span in readings.spans if span.name == "load")
    log_drop, share = drop(readings, load), attribute(readings, Costs(readings))[-1].exposed_share
    assert 1 - math.exp(-log_drop.estimate) == pytest.approx(share.estimate)


def test_a_gain_that_is_sure_is_so_over_all_gains_together():
    readings = read(measure(AUGMENT_BOUND, noise=0.03))
    costs = Costs(readings)
    plain = attribute(readings, costs)
    family = {stage.name: stage.gain_if_free for stage in with_family_gains(readings, costs, plain)}
    assert family["compute"] is None
    narrow, sure = plain[-2].gain_if_free, family["augment"]
    assert (sure.estimate, sure.high) == (narrow.estimate, narrow.high)
    widened = math.log(sure.estimate / sure.low) / math.log(narrow.estimate / narrow.low)
    assert widened == pytest.approx(t_quantile(7, 0.99) / t_quantile(7, 0.95))


def test_of_dozens_of_stages_that_gain_nothing_none_clearly_does():
    sure = 0
    for seed in range(60):
        marks = [f"mark{number}" for number in range(46)]
        readings = read(dozens(marks, seed))
        costs = Costs(readings)
        stages = with_family_gains(readings, costs, attribute(readings, costs))
        sure += any(s.gain_if_free is not None and s.gain_if_free.low > 1.03 for s in stages)
    assert sure <= 3


def dozens(marks, seed):
    """A job of many marked stages, none of which gains anything."""
    random = np.random.default_rng(seed)

    def blocks():
        seconds = np.exp(random.normal(0, 0.2, 6))
        return Rate.of(tuple(Block(r, 32, float(s), 1) for r, s in enumerate(seconds)))

    whole = measure(Job(coupled={"device": 0.01, "raw": 0.02}), rounds=6, noise=0.2, seed=seed)
    raw = Experiment("raw", True, None, blocks(), None)
    return replace(
        whole,
        experiments=(whole.experiments[0], raw),
        without=tuple(Without(mark, blocks()) for mark in marks),
        stages=(*(Stage.between(mark, None, "raw") for mark in marks), Stage.between("compute", None, "device")),
    )


def test_a_drop_near_the_margin_is_undecided():
    job = Job(coupled={"device": 0.01, "host": 0.0103})

    assert stages_of(measure(job, noise=0.02, rounds=6))["copy"].finding == "undecided"


def test_confidence_is_shared_among_the_drops_that_were_measured():
    assert drop_confidence(read(measure(AUGMENT_BOUND))) == pytest.approx(0.99)
    assert drop_confidence(read(measure(Job(coupled={"device": 1.0})))) == pytest.approx(0.95)


def test_one_round_has_no_intervals_and_decides_nothing():
    stages = stages_of(keep_rounds(measure(AUGMENT_BOUND), 1))

    load = stages["load"]
    assert load.cost_s_per_batch is load.exposed_s_per_batch is load.exposed_share is load.gain_if_free is None
    assert load.finding == "undecided"


def test_rounds_that_one_experiment_lacks_are_left_out_of_its_pairs():
    whole = measure(AUGMENT_BOUND, noise=0, rounds=6)
    # The machine is ten times slower in round 5, which `raw` alone has seen.
    slowed = map_blocks(whole, lambda b: replace(b, seconds=b.seconds * 10) if b.round == 5 else b)
    cut = map_coupled(slowed, lambda e: e.coupled if e.name == "raw" else Rate.of(e.coupled.blocks[:5]))
    assert stages_of(cut)["load"].exposed_s_per_batch.estimate == pytest.approx(0.0019)


def test_a_missing_inner_experiment_leaves_exposure_unknown():
    cut = map_coupled(measure(AUGMENT_BOUND), lambda e: None if e.name == "before_augment" else e.coupled)
    load = stages_of(cut)["load"]
    assert load.exposed_s_per_batch is None
    assert load.exposed_share is None
    assert load.finding == "undecided"
    assert load.gain_if_free is not None


def test_the_innermost_loader_stage_owns_all_of_its_drained_time():
    # With num_workers=0 there is no hand-off: collation is the first stage of the loader.
    rate = Rate.of(tuple(Block(r, BATCH_SIZE, 0.01, 1) for r in range(6)))
    measurement = replace(
        measure(Job(coupled={"device": 0.01})),
        experiments=(
            Experiment("device", True, None, rate, None),
            Experiment("before_collate", True, None, rate, rate),
        ),
        stages=(Stage.between("compute", None, "device"), Stage.between("collate", "device", "before_collate")),
    )

    assert stages_of(measurement)["collate"].cost_s_per_batch.estimate == pytest.approx(0.01)


def test_a_loader_stage_without_its_drained_experiment_has_no_cost():
    job = replace(AUGMENT_BOUND, drained={})

    stages = stages_of(measure(job))

    assert stages["augment"].cost_s_per_batch is None
    assert stages["copy"].cost_s_per_batch == stages["copy"].exposed_s_per_batch


def test_rates_are_totals_over_totals_with_an_interval():
    measurement = measure(AUGMENT_BOUND, noise=0.05, rounds=10)

    raw = experiments(measurement, read(measurement))[-1].coupled

    seconds = sum(b.seconds for b in raw.blocks)
    assert raw.samples_per_s == pytest.approx(sum(b.samples for b in raw.blocks) / seconds)
    assert raw.seconds_per_batch == pytest.approx(seconds / sum(b.batches for b in raw.blocks))
    assert raw.low < raw.samples_per_s < raw.high


def test_a_rate_from_one_round_has_the_estimate_for_bounds():
    measurement = keep_rounds(measure(AUGMENT_BOUND), 1)

    device = experiments(measurement, read(measurement))[0].coupled

    assert device.low == device.samples_per_s == device.high


def test_rates_do_not_suffer_from_several_blocks_in_a_round():
    whole = measure(AUGMENT_BOUND, noise=0.02)

    def halves(block):
        return [replace(block, samples=block.samples // 2, seconds=block.seconds / 2, batches=block.batches // 2)] * 2

    split = map_coupled(whole, lambda e: Rate.of(h for b in e.coupled.blocks for h in halves(b)))
    before, after = (stages_of(m)["augment"].exposed_s_per_batch for m in (whole, split))
    assert np.allclose([after.estimate, after.low, after.high], [before.estimate, before.low, before.high])
