import json
import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bottleneck.analysis.analyse import analyse, judge
from bottleneck.analysis.readings import read
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, LAST_STRAW, keep_rounds, map_blocks, measure

measurements = st.builds(
    measure,
    st.sampled_from([AUGMENT_BOUND, LAST_STRAW, DEVICE_BOUND]),
    rounds=st.integers(2, 9),
    noise=st.floats(0, 1),
    drift=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)


def intervals(result):
    for stage in result.stages:
        yield from (stage.cost_s_per_batch, stage.exposed_s_per_batch, stage.exposed_share, stage.gain_if_free)
    yield from (result.verdict.efficiency, result.verdict.headroom)


def test_the_judgement_is_that_of_the_whole_analysis():
    for job in (AUGMENT_BOUND, LAST_STRAW, DEVICE_BOUND):
        measurement = measure(job, noise=0.05)
        judgement, verdict = judge(measurement), analyse(measurement).verdict
        assert judgement.state == verdict.state
        assert judgement.efficiency == verdict.efficiency
        assert judgement.leaning.state == verdict.state or verdict.state == "undecided"


def test_the_efficiency_covers_the_truth():
    runs = [measure(AUGMENT_BOUND, noise=0.03, drift=0.2, rounds=6, seed=seed) for seed in range(500)]
    found = [read(run).log_efficiency().exponentiated() for run in runs]
    covered = sum(efficiency.low <= 0.0094 / 0.0247 <= efficiency.high for efficiency in found)

    assert judge(runs[0]).efficiency == found[0]
    assert 0.92 <= covered / 500 <= 0.985


def test_what_is_lost_goes_by_the_new_verdict():
    # Guards: another analysis of a result with a price kept what the old one had lost.
    measurement = measure(replace(AUGMENT_BOUND, evidence={"gpu_hour_price": 2.0, "lost_per_gpu_hour": None}))

    result = analyse(measurement)

    assert result.evidence.lost_per_gpu_hour.estimate == pytest.approx(2 * (1 - result.verdict.efficiency.estimate))


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_an_interrupted_measurement_can_be_analysed(rounds):
    result = analyse(keep_rounds(measure(AUGMENT_BOUND), rounds))

    assert json.dumps(asdict(result), allow_nan=False)
    assert result.verdict.sentence


@settings(max_examples=60, deadline=None)
@given(measurements)
def test_every_interval_is_finite_and_ordered(measurement):
    result = analyse(measurement)

    for interval in intervals(result):
        assert interval is None or -math.inf < interval.low <= interval.estimate <= interval.high < math.inf
    assert result.verdict.efficiency is None or result.verdict.efficiency.low > 0
    assert json.dumps(asdict(result), allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(measurements, st.sampled_from([2.0**-10, 0.25, 2.0, 2.0**10]))
def test_the_unit_of_time_does_not_matter(measurement, scale):
    """Powers of two, which scale floating-point numbers exactly, so that no knife-edge can tip."""

    def scaled(block):
        return replace(block, seconds=block.seconds * scale, first_half_seconds=block.first_half_seconds * scale)

    plain, changed = analyse(measurement), analyse(map_blocks(measurement, scaled))

    for one, other in zip(plain.stages, changed.stages, strict=True):
        assert other.exposed_s_per_batch.estimate == pytest.approx(scale * one.exposed_s_per_batch.estimate)
        assert other.cost_s_per_batch.high == pytest.approx(scale * one.cost_s_per_batch.high)
        shares = [stage.exposed_share and stage.exposed_share.estimate for stage in (one, other)]
        assert shares[1] == pytest.approx(shares[0])
    bounds = [verdict.efficiency and verdict.efficiency.low for verdict in (plain.verdict, changed.verdict)]
    assert bounds[1] == pytest.approx(bounds[0])
    assert changed.verdict.state == plain.verdict.state
    assert changed.verdict.bottleneck == plain.verdict.bottleneck


@settings(max_examples=60, deadline=None)
@given(measurements, st.randoms(use_true_random=False))
def test_the_order_of_rounds_does_not_matter(measurement, random):
    order = list(range(9))
    random.shuffle(order)

    plain = analyse(measurement)
    changed = analyse(map_blocks(measurement, lambda b: replace(b, round=order[b.round])))

    for one, other in zip(intervals(plain), intervals(changed), strict=True):
        if one is not None:
            assert other.estimate == pytest.approx(one.estimate, rel=1e-6, abs=1e-9)
            assert other.high == pytest.approx(one.high, rel=1e-6, abs=1e-9)
