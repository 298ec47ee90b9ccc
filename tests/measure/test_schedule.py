"""Six rounds fit where they can; where they cannot, the decision comes first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottleneck.measure.arms import Capabilities, build_ladder
from bottleneck.measure.schedule import (
    MIN_ROUNDS,
    OrderOfArms,
    Pace,
    find_deadline_s,
    lengths_for,
    plan_round,
    rounds_fit,
    total_budget_s,
)

LADDER = build_ladder(
    Capabilities(copies=True, hands_over=True, within_sample=("finish", "augment", "load"), can_stop=True)
)
ARMS = LADDER.arms()
WORKERS = 4


def paces(step_s, preparing_s=0.05):
    return {arm: Pace(step_s, preparing_s) for arm in ARMS}


def deadline(step_s, **options):
    given = {"started_s": 1000.0, "now_s": 1005.0, "budget_s": None, "quick": False, **options}
    return find_deadline_s(LADDER, paces(step_s), WORKERS, **given)


def plan(step_s, left_s, rounds=MIN_ROUNDS, quick=False, arms=ARMS):
    return plan_round(LADDER, arms, paces(step_s), WORKERS, left_s=left_s, rounds=rounds, quick=quick)


# --- orders ------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000))
def test_each_round_visits_every_arm_once_and_the_next_one_goes_back(seed):
    order = OrderOfArms(seed)
    for _ in range(3):
        there, back = order.next_round(ARMS), order.next_round(ARMS)
        assert sorted(there, key=str) == sorted(ARMS, key=str)
        assert back == there[::-1]


def test_orders_are_random_and_repeatable():
    def three_pairs(seed):
        order = OrderOfArms(seed)
        return [order.next_round(ARMS) for _ in range(6)]

    assert three_pairs(1) == three_pairs(1)
    assert three_pairs(1) != three_pairs(2)
    rounds = three_pairs(1)
    assert rounds[0] != rounds[2]


def test_a_reverse_order_is_not_used_for_other_arms():
    order = OrderOfArms(0)
    order.next_round(ARMS)
    assert sorted(order.next_round(ARMS[:2]), key=str) == sorted(ARMS[:2], key=str)


# --- lengths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_s", [0.001, 0.01, 0.03, 0.1])
def test_six_rounds_fit_into_the_default_budget(step_s):
    left_s = deadline(step_s) - 1005.0
    lengths = plan(step_s, left_s)
    assert MIN_ROUNDS * lengths.round_s(ARMS) <= left_s
    assert rounds_fit(LADDER, paces(step_s), WORKERS, left_s)


def test_blocks_are_multiples_of_the_number_of_workers_also_when_time_is_short():
    for left_s in (1000.0, 30.0, 5.0, 0.0):
        lengths = plan(0.02, left_s)
        assert all(lengths.batches[arm] % WORKERS == 0 for arm in ARMS if arm.mode is not None)


def test_blocks_are_no_longer_than_is_useful():
    lengths = plan(0.01, 10_000.0)
    assert max(lengths.batches[arm] * 0.01 for arm in ARMS) <= 0.25
    assert max(plan(0.2, 10_000.0).batches.values()) * 0.2 <= 1.5 + WORKERS * 0.2


def test_blocks_get_shorter_where_time_is_short_and_never_empty():
    long, short, none = (plan(0.02, left_s).round_s(ARMS) for left_s in (1000.0, 40.0, 0.0))
    assert long > short > none > 0


def test_rounds_that_are_left_share_the_time_that_is_left():
    assert plan(0.02, 12.0, rounds=1).round_s(ARMS) > plan(0.02, 12.0, rounds=5).round_s(ARMS)


def test_fewer_arms_share_the_time_that_is_left():
    ends = (LADDER.device, LADDER.raw)
    assert plan(0.02, 5.0, arms=ends).batches[LADDER.raw] > plan(0.02, 5.0).batches[LADDER.raw]


def test_a_visit_takes_its_preparation_too():
    lengths = lengths_for({LADDER.device: Pace(0.5, 2.0)}, 1.0, WORKERS)
    assert lengths.batches[LADDER.device] == 2
    assert lengths.seconds[LADDER.device] == 3.0


def test_a_first_visit_that_was_an_exception_is_corrected():
    assert Pace(1.0, 4.0).updated(Pace(0.5, 2.0)) == Pace(0.75, 3.0)


# --- budgets -----------------------------------------------------------------------------------------------


def test_the_users_budget_holds_however_slow_the_job_is():
    for step_s in (0.001, 1.0, 30.0):
        assert deadline(step_s, budget_s=20.0) < 1020.0
        assert deadline(step_s, quick=True) < 1020.0


def test_our_own_budget_grows_for_slow_jobs_and_stays_under_three_minutes():
    assert deadline(0.01) <= 1060.0
    assert 1060.0 < deadline(0.3) < 1180.0
    assert deadline(1.0) <= 1180.0
    assert deadline(60.0) <= 1180.0


def test_time_is_kept_for_putting_everything_back():
    assert deadline(0.01, budget_s=20.0) <= 1019.0


def test_total_budgets():
    assert total_budget_s(7.0, quick=True) == 7.0
    assert total_budget_s(None, quick=True) <= 20.0
    assert total_budget_s(None, quick=False) <= 60.0


def test_slow_steps_are_decided_first():
    # A second a step: six full rounds take minutes, and the verdict shall not wait for them.
    left_s = deadline(1.0) - 1005.0
    assert not rounds_fit(LADDER, paces(1.0), WORKERS, left_s)
    assert rounds_fit(LADDER, paces(0.01), WORKERS, deadline(0.01) - 1005.0)
    deciding_s = MIN_ROUNDS * plan(1.0, left_s).round_s((LADDER.device, LADDER.raw))
    assert deciding_s < left_s
