"""The next number of workers to try, and the verdict on a change from pairs of blocks."""

import math
import random

import pytest
from scipy.stats import mstats

from bottleneck.results.records import Block
from bottleneck.results.tuning import Pair
from bottleneck.tuner.changes.loader import next_count
from bottleneck.tuner.judging import gain, judge, log_gains


@pytest.mark.parametrize(
    ("present", "given", "judged", "limit", "wanted"),
    [
        (0, 0, {}, 2, 1),
        (2, 2, {}, 2, 1),  # no core is left: fewer
        (2, 2, {}, 8, 4),
        (4, 2, {4: "kept", 8: "dropped"}, 8, 6),
        (4, 2, {4: "kept", 8: "dropped", 6: "dropped"}, 8, None),
        (1, 1, {2: "dropped"}, 2, 0),
        (0, 1, {2: "dropped", 0: "kept"}, 2, None),
        (8, 8, {16: "failed", 12: "dropped"}, 16, 4),
        (2, 2, {1: "dropped"}, 2, 0),  # handing over may cost more than making
        (2, 2, {1: "dropped", 0: "dropped"}, 2, None),
        (4, 1, {2: "kept", 4: "kept", 8: "dropped", 6: "dropped"}, 8, None),  # more of them paid
    ],
)
def test_which_number_of_workers_is_next(present, given, judged, limit, wanted):
    assert next_count(present, given, judged, limit) == wanted


@pytest.mark.parametrize(
    ("present", "judged", "limit", "needed", "wanted"),
    [
        (0, {}, 16, 5, 5),
        (0, {}, 2, 5, 2),
        (8, {8: "kept"}, 32, 10, 10),
        (5, {5: "kept"}, 16, 3, 10),
        (0, {5: "dropped"}, 16, 5, 2),
        (2, {8: "dropped"}, 16, 8, 5),
    ],
)
def test_as_many_workers_as_the_step_needs_are_tried_at_once(present, judged, limit, needed, wanted):
    assert next_count(present, min(present, 2), judged, limit, needed) == wanted


# --- pairs --------------------------------------------------------------------------------------------------


def noisy_pairs(true_gain, noise, seed, disturbed):
    generator = random.Random(seed)

    def block_s():
        return math.exp(generator.gauss(0, noise)) * (2.0 if generator.random() < disturbed else 1.0)

    while True:
        base_s, changed_s = block_s(), block_s()
        yield Pair(Block(0, 100, base_s), Block(0, 100, changed_s / true_gain))


def decided(true_gain, noise=0.02, seed=0, disturbed=0.0):
    """The outcome, and the pairs that it took."""
    pairs = []
    for pair in noisy_pairs(true_gain, noise, seed, disturbed):
        pairs.append(pair)
        outcome = judge(pairs)
        if outcome is not None:
            return outcome, pairs


@pytest.mark.parametrize(
    ("true_gain", "outcomes", "pairs"),
    [(1.3, ("kept",), 6), (1.1, ("kept",), 8), (1.0, ("dropped", "undecided"), 6), (0.7, ("dropped", "undecided"), 4)],
)
def test_clear_changes_are_judged_rightly_and_what_gains_nothing_soon(true_gain, outcomes, pairs):
    found = [decided(true_gain, seed=seed, disturbed=0.03) for seed in range(100)]
    assert sum(outcome in outcomes for outcome, _ in found) >= 90
    assert sum(len(measured) for _, measured in found) <= 100 * pairs


def test_blocks_that_the_machine_disturbs_hide_no_large_gain_and_make_none():
    large, none = ([decided(true_gain, seed=seed, disturbed=0.1)[0] for seed in range(200)] for true_gain in (1.5, 1.0))
    assert large.count("kept") >= 180
    assert none.count("kept") <= 3


def test_a_change_that_is_far_slower_takes_three_pairs_only():
    assert [len(decided(0.6, seed=seed)[1]) for seed in range(20)] == [3] * 20


def test_a_change_that_is_far_faster_takes_three_pairs_only():
    found = [decided(2.0, seed=seed) for seed in range(20)]
    assert [(outcome, len(pairs)) for outcome, pairs in found] == [("kept", 3)] * 20


@pytest.mark.parametrize("count", [2, 3, 5, 8, 13, 24])
def test_the_interval_is_that_of_tukey_and_mclaughlin(count):
    pairs = [pair for pair, _ in zip(noisy_pairs(1.2, 0.1, count, 0.2), range(count), strict=False)]
    found = gain(pairs)
    low, high = mstats.trimmed_mean_ci(log_gains(pairs), (0.2, 0.2), alpha=0.05)
    assert [math.log(found.low), math.log(found.high)] == pytest.approx([low, high])
    assert math.log(found.estimate) == pytest.approx(mstats.trimmed_mean(log_gains(pairs), (0.2, 0.2)))


def test_three_slow_pairs_that_disagree_settle_nothing():
    pairs = [Pair(Block(0, 100, 1.0), Block(0, 100, seconds)) for seconds in (1.2, 4.0, 1.25)]
    assert gain(pairs).high > 1.02
    assert judge(pairs) is None


def test_what_cannot_be_told_ends_undecided_and_only_then():
    outcome, pairs = decided(1.02, noise=0.02, seed=1)
    assert outcome in ("undecided", "dropped")
    assert len(pairs) <= 24
    assert judge(pairs[:3]) is None
    assert judge(pairs[:4], last=True) is not None
