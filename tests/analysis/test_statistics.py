import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bottleneck.analysis.statistics import (
    Series,
    Spread,
    align,
    jackknife,
    log_ratio,
    ratio,
    series,
    t_quantile,
    welch,
)
from bottleneck.results.records import Block


def simulated(random, mean, rounds, noise, speed=1.0):
    seconds = mean * speed * np.exp(random.normal(0, noise, rounds))
    return Series(np.arange(rounds), np.full(rounds, 640.0), np.full(rounds, 20.0), 640 * seconds)


def test_blocks_of_one_round_are_summed():
    summed = series([Block(1, 10, 2.0, 1), Block(0, 10, 1.0, 1), Block(1, 30, 2.0, 3)])

    assert summed.rounds.tolist() == [0, 1]
    assert summed.samples.tolist() == [10, 40]
    assert summed.seconds.tolist() == [1.0, 4.0]
    assert summed.seconds_per_sample == pytest.approx(5 / 50)
    assert summed.samples_per_batch == 10


def test_blocks_that_say_nothing_of_a_rate_are_left_out():
    assert len(series([Block(0, 0, 1.0, 0), Block(1, 5, 0.0, 1)])) == 0


def test_a_batch_is_a_sample_where_batches_were_not_counted():
    assert series([Block(0, 10, 1.0, 0)]).samples_per_batch == 1


def test_align_keeps_common_rounds_only():
    a = series([Block(r, 1, 1.0 + r, 1) for r in (0, 1, 3)])
    b = series([Block(r, 1, 1.0, 1) for r in (1, 2, 3)])

    left, right = align((a, b))

    assert left.rounds.tolist() == right.rounds.tolist() == [1, 3]
    assert left.seconds.tolist() == [2.0, 4.0]


def test_fewer_than_two_common_rounds_give_no_interval():
    a = series([Block(0, 1, 1.0, 1), Block(1, 1, 1.0, 1)])
    b = series([Block(1, 1, 1.0, 1), Block(2, 1, 1.0, 1)])

    assert ratio(a, b) is None
    assert log_ratio(a, b) is None
    assert jackknife(np.log, (series([Block(0, 1, 1.0, 1)]),)) is None
    assert ratio(a, series([])) is None


def test_quantiles_are_those_of_students_t():
    for degrees in (1, 5, 30):
        assert t_quantile(degrees, 0.95) == pytest.approx(stats.t.ppf(0.975, degrees))
        assert t_quantile(degrees, 0.99) == pytest.approx(stats.t.ppf(0.995, degrees))


def test_a_rate_is_total_over_total_and_no_mean_of_rates():
    # Rates 10/s and 2.5/s: their mean is 6.25/s, but 20 samples took 5 s.
    uneven = series([Block(0, 10, 1.0, 1), Block(1, 10, 4.0, 1)])
    even = series([Block(0, 10, 1.0, 1), Block(1, 10, 1.0, 1)])

    assert ratio(uneven, even).estimate == pytest.approx(2.5)


def test_jackknife_of_a_mean_is_the_classical_standard_error():
    seconds = np.array([1.0, 2.0, 4.0, 7.0])
    blocks = series([Block(i, 1, float(s), 1) for i, s in enumerate(seconds)])

    spread = jackknife(lambda time: time, (blocks,))

    assert spread.estimate == pytest.approx(seconds.mean())
    assert spread.standard_error == pytest.approx(seconds.std(ddof=1) / 2)
    expected = stats.t.interval(0.95, 3, loc=seconds.mean(), scale=stats.sem(seconds))
    assert (spread.interval().low, spread.interval().high) == pytest.approx(expected)


@pytest.mark.parametrize(("rounds", "noise"), [(6, 0.02), (12, 0.05), (6, 0.2)])
def test_the_95_percent_interval_of_a_ratio_covers_the_truth(rounds, noise):
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(500):
        interval = ratio(simulated(random, 1.0, rounds, noise), simulated(random, 2.0, rounds, noise))
        covered += interval.low <= 0.5 <= interval.high

    assert 0.92 <= covered / 500 <= 0.985


def test_the_95_percent_interval_of_a_difference_covers_the_truth():
    random = np.random.default_rng(8)
    covered = 0
    for _ in range(500):
        group = (simulated(random, 3.0, 8, 0.05), simulated(random, 2.5, 8, 0.05))
        interval = jackknife(lambda a, b: a - b, group).interval()
        covered += interval.low <= 0.5 <= interval.high

    assert 0.92 <= covered / 500 <= 0.985


def test_drift_common_to_a_round_cancels_in_the_paired_comparison():
    random = np.random.default_rng(9)
    speed = np.exp(random.normal(0, 0.3, 8))
    outer, inner = (simulated(random, mean, 8, 0.005, speed) for mean in (1.1, 1.0))

    paired = log_ratio(outer, inner)

    assert paired.estimate == pytest.approx(math.log(1.1), abs=0.01)
    assert paired.half_width() < 0.02
    # Without the pairing the drift of 30 % would drown the 10 %.
    assert jackknife(np.log, (outer,)).half_width() > 0.1


def test_the_interval_of_the_inverse_is_the_inverse_of_the_interval():
    random = np.random.default_rng(10)
    a, b = simulated(random, 1.0, 6, 0.3), simulated(random, 2.0, 6, 0.3)

    there, back = ratio(a, b), ratio(b, a)

    assert there.low == pytest.approx(1 / back.high)
    assert there.high == pytest.approx(1 / back.low)


def test_bounds_stay_finite_when_two_rounds_disagree_wildly():
    a = series([Block(0, 1, 1e-6, 1), Block(1, 1, 1e6, 1)])
    b = series([Block(0, 1, 1e6, 1), Block(1, 1, 1e-6, 1)])

    interval = ratio(a, b)

    assert 0 < interval.low <= interval.estimate <= interval.high < math.inf


times = st.lists(st.floats(1e-4, 1e3), min_size=2, max_size=12)


@given(times, st.data())
def test_intervals_are_ordered_and_positive_ratios_stay_positive(seconds, data):
    other = data.draw(st.lists(st.floats(1e-4, 1e3), min_size=len(seconds), max_size=len(seconds)))
    a = series([Block(i, 8, s, 1) for i, s in enumerate(seconds)])
    b = series([Block(i, 8, s, 1) for i, s in enumerate(other)])

    interval = ratio(a, b)
    difference = jackknife(lambda x, y: x - y, (a, b)).interval()

    assert 0 < interval.low <= interval.estimate <= interval.high < math.inf
    assert difference.low <= difference.estimate <= difference.high


@given(times, st.data(), st.floats(1e-3, 1e3))
def test_a_ratio_does_not_depend_on_the_unit_of_time_or_on_the_order_of_rounds(seconds, data, scale):
    other = data.draw(st.lists(st.floats(1e-4, 1e3), min_size=len(seconds), max_size=len(seconds)))
    order = data.draw(st.permutations(range(len(seconds))))
    plain = log_ratio(*(series([Block(i, 8, s, 1) for i, s in enumerate(x)]) for x in (seconds, other)))

    changed = log_ratio(
        *(series([Block(order[i], 8, scale * s, 1) for i, s in enumerate(x)]) for x in (seconds, other))
    )

    assert changed.estimate == pytest.approx(plain.estimate, abs=1e-9)
    assert changed.standard_error == pytest.approx(plain.standard_error, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("estimate", [0.0, 709.0, -1e5])
@pytest.mark.parametrize("error", [0.0, 1e160, 1e308])
def test_numbers_of_any_size_give_finite_intervals(estimate, error):
    # Guards: a saved result may hold any number, and a square of one raised OverflowError.
    spread = Spread(estimate, error, 5)
    for interval in (spread.exponentiated(), welch(spread, Spread(-estimate, 0.01, 7))):
        assert 0 < interval.low <= interval.estimate <= interval.high < math.inf
