"""The length of blocks, and the order of experiments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset

from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.rounds.schedule import (
    EVEN,
    MIN_INTERVAL_ROUNDS,
    MIN_ROUNDS,
    Pace,
    Planner,
    Timekeeper,
    find_bursts,
    find_deadline_s,
    lengths_for,
)
from bottleneck.measure.rounds.turns import OrderOfArms
from tests.measure.ladders import make_ladder
from tests.support.clock import FakeClock
from tests.support.sessions import UNDECIDED, blocks, pipeline_of, run, run_simulated, warnings_of

# --- device and raw are in every round; the other experiments take turns where the time is short -------------


LADDER = make_ladder(copies=True, within_sample=("augment", "load"))
ARMS = LADDER.arms()
WORKERS = 4


def paces(step_s, preparing_s=0.05):
    return {arm: Pace(step_s, preparing_s) for arm in ARMS}


def deadline(step_s, arms=ARMS, **options):
    given = {"started_s": 1000.0, "now_s": 1005.0, "budget_s": None, "quick": False, **options}
    return find_deadline_s(LADDER, paces(step_s), WORKERS, arms, **given)


def plan(step_s, left_s, rounds=MIN_ROUNDS, quick=False, arms=ARMS):
    return Planner(LADDER, WORKERS, quick=quick).lengths_within(paces(step_s), left_s / rounds, arms)


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


def test_the_next_round_begins_with_what_came_last_and_ends_with_what_joins_unless_something_has_gone():
    order = OrderOfArms(0)
    there = order.next_round(ARMS[:6], last=ARMS[:3])
    assert (set(there[3:]), order.next_round(ARMS)[:6]) == (set(ARMS[:3]), there[::-1])
    assert [set(order.next_round(arms)) for arms in (ARMS, ARMS[:2])] == [set(ARMS), set(ARMS[:2])]


# --- lengths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_s", [0.001, 0.01, 0.02])
def test_six_rounds_of_everything_fit_into_the_default_budget(step_s):
    left_s = deadline(step_s) - 1005.0
    planner = Planner(LADDER, WORKERS, quick=False)
    assert planner.rounds_within(paces(step_s), 0.7 * left_s) == MIN_ROUNDS
    for _ in range(MIN_ROUNDS):
        arms, lengths = planner.plan(paces(step_s), left_s / MIN_ROUNDS, left_s)
        assert set(arms) == set(ARMS)
        assert MIN_ROUNDS * lengths.round_s(arms) <= left_s


def run_rounds(step_s, seconds, rounds=MIN_ROUNDS):
    """Plan so many rounds and let their time pass; return how often each arm was visited."""
    planner, visits, left_s = Planner(LADDER, WORKERS, quick=False), dict.fromkeys(ARMS, 0), seconds
    for rounds_left in range(rounds, 0, -1):
        arms, lengths = planner.plan(paces(step_s), left_s / rounds_left, left_s)
        assert {LADDER.device, LADDER.raw} <= set(arms)
        left_s -= lengths.round_s(arms)
        for arm in arms:
            visits[arm] += 1
    assert left_s >= 0.0
    return visits


def test_device_and_raw_are_in_every_round_and_the_others_take_turns():
    # Guards: a budget that is spent before what decides has been measured.
    visits = run_rounds(0.1, 60.0)
    assert visits[LADDER.device] == visits[LADDER.raw] == MIN_ROUNDS
    for group in LADDER.groups():
        assert len({visits[arm] for arm in group}) == 1  # compared arms are visited together
    assert 1 <= min(visits.values()) < MIN_ROUNDS


def test_what_never_fits_does_not_keep_out_what_does():
    visits = run_rounds(0.5, 60.0)
    assert visits[LADDER.raw] == MIN_ROUNDS
    assert sorted(set(visits.values()))[-2] >= 1


def test_a_job_too_slow_for_six_rounds_gets_those_that_fit():
    planner = Planner(LADDER, WORKERS, quick=False)
    assert MIN_INTERVAL_ROUNDS <= planner.rounds_within(paces(1.0), 60.0) < MIN_ROUNDS
    assert planner.rounds_within(paces(60.0), 60.0) == MIN_INTERVAL_ROUNDS


@pytest.mark.parametrize("seconds", [13.0, 14.0, 16.0])
def test_blocks_are_cut_short_before_there_are_fewer_than_four_rounds(seconds):
    # Guards: two rounds that differ by 6 % are read as an efficiency of 36 %, give or take 15 points.
    planner = Planner(LADDER, WORKERS, quick=False)
    assert planner.rounds_within(paces(0.2), seconds) >= 4


def test_blocks_of_the_loader_alone_are_multiples_of_the_number_of_workers_also_when_time_is_short():
    for left_s in (1000.0, 30.0, 5.0, 0.0):
        lengths = plan(0.02, left_s)
        alone = [arm for arm in ARMS if arm.mode is not None and not arm.coupled]
        assert all(lengths.batches[arm] % WORKERS == 0 for arm in alone)


def test_blocks_are_no_longer_than_is_useful():
    lengths = plan(0.01, 10_000.0)
    assert max(lengths.batches[arm] * 0.01 for arm in ARMS) <= 0.5
    assert max(plan(0.2, 10_000.0).batches.values()) * 0.2 <= 3.0 + WORKERS * 0.2


def test_what_decides_is_the_last_to_be_cut_short():
    short = plan(0.02, 6 * 5.0)
    full = plan(0.02, 1000.0)
    assert short.batches[LADDER.raw] == full.batches[LADDER.raw]
    assert short.batches[LADDER.device] == full.batches[LADDER.device]
    assert sum(short.batches.values()) < sum(full.batches.values())


def test_blocks_get_shorter_where_time_is_short_and_never_empty():
    long, short, none = (plan(0.02, left_s).round_s(ARMS) for left_s in (1000.0, 30.0, 0.0))
    assert long > short > none > 0


def test_fewer_arms_share_the_time_that_is_left():
    ends = (LADDER.device, LADDER.raw)
    assert plan(0.02, 20.0, arms=ends).batches[LADDER.raw] > plan(0.02, 20.0).batches[LADDER.raw]


def test_a_visit_takes_its_preparation_too():
    lengths = lengths_for({LADDER.device: Pace(0.5, 2.0)}, 1.0, WORKERS)
    assert lengths.batches[LADDER.device] == 2
    assert lengths.seconds[LADDER.device] == 3.0


def test_a_first_visit_that_was_an_exception_is_corrected():
    assert Pace(1.0, 4.0).updated(Pace(0.5, 2.0)) == Pace(0.75, 3.0)


# --- budgets -----------------------------------------------------------------------------------------------


def test_the_users_budget_holds_however_slow_the_job_is():
    for step_s in (0.001, 1.0, 30.0):
        assert deadline(step_s, budget_s=20.0) <= 1019.0  # some time is kept for putting everything back
        assert deadline(step_s, budget_s=7.0, quick=True) < 1007.0
        assert deadline(step_s, quick=True) < 1020.0


def test_what_was_spent_before_the_measuring_is_part_of_its_budget():
    told, clock = [], FakeClock()
    timekeeper = Timekeeper(MeasureOptions(budget_s=20.0, spent_s=5.0), told.append, clock)
    clock.now_s += 1.0
    timekeeper.tell("recording")
    assert (told[0].elapsed_s, told[0].budget_s, timekeeper.counted_from_s) == (6.0, 20.0, -5.0)


def test_our_own_budget_grows_for_slow_jobs_and_stays_under_three_minutes():
    assert deadline(0.01) <= 1060.0
    assert 1060.0 < deadline(0.3) < 1180.0
    assert deadline(0.3, arms=(LADDER.device, LADDER.raw)) <= 1060.0
    assert deadline(1.0) <= 1180.0
    assert deadline(60.0) <= 1180.0


@pytest.mark.parametrize("step_s", [0.01, 0.3, 1.5])
def test_what_is_said_to_be_left_is_left(step_s):
    """Guards: a budget that grew for a slow job, and 'at most 0 s' for half of it."""
    told = []
    made = run_simulated(step_s, MeasureOptions(), on_progress=told.append)
    measuring = [update for update in told if update.phase == "measuring"]
    assert all(update.elapsed_s < update.budget_s for update in measuring)
    assert made.measurement.cost.seconds <= measuring[-1].budget_s
    assert measuring[-1].budget_s <= max(60.0, 1.05 * made.measurement.cost.seconds)


# --- a queue of samples that refills at once: blocks are planned for its refills, not for what lies ready ---


BATCH, STEP_S = 4, 0.016


class Patches(Dataset):
    """Samples from a queue that is filled from volumes when it is empty."""

    def __init__(self, clock, batches, refill_s):
        self.clock, self.most, self.refill_s, self.left = clock, batches * BATCH, refill_s, 0

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        if not self.left:
            self.clock.advance(self.refill_s)
            self.left = self.most
        self.left -= 1
        return float(index)


def diagnose(batches, refill_s, budget_s=None):
    clock = FakeClock(50.0, per_reading_s=1e-4)
    dataset = Patches(clock, batches, refill_s)
    job = pipeline_of(dataset, train_step=clock.step(STEP_S), num_workers=0, batch_size=BATCH)
    made = run(job, MeasureOptions(budget_s=budget_s), judge=lambda _: UNDECIDED, clock=clock)
    return made, made.measurement.cost.seconds


def efficiency(found):
    per_batch = [
        sum(b.seconds for b in each) / sum(b.batches for b in each) for each in (found["device"], found["raw"])
    ]
    return per_batch[0] / per_batch[1]


@pytest.mark.parametrize(("batches", "refill_s"), [(16, 0.5), (40, 0.2), (50, 0.1), (5, 0.03)])
def test_a_queue_that_refills_is_measured_over_its_refills_within_a_minute(batches, refill_s):
    # Guards: the first batch lies ready, and a block of thousands was planned by it.
    made, took_s = diagnose(batches, refill_s)
    found = blocks(made)
    assert took_s < 60.0
    assert len(found["raw"]) >= 6
    assert efficiency(found) == pytest.approx(STEP_S / (STEP_S + refill_s / batches), rel=0.1)
    assert "bursts" not in warnings_of(made)
    settled = [block.seconds / block.batches for block in found["raw"][-6:]]
    assert max(settled) < 1.6 * min(settled)  # each holds one refill of three more than others at most


@pytest.mark.parametrize(("batches", "refill_s"), [(90, 3.0), (200, 1.5), (100, 20.0)])
def test_a_queue_whose_refills_are_longer_than_blocks_says_so(batches, refill_s):
    made, took_s = diagnose(batches, refill_s, budget_s=50.0)
    assert took_s < 50.0 + refill_s
    assert f"waits {refill_s:.2g} s for one" in warnings_of(made)["bursts"]


def test_batches_that_come_evenly_are_no_bursts():
    # Guards: blocks that grow without need cost all other experiments their time.
    turn = [0.1, 0.0, 0.0, 0.0]
    assert find_bursts(30 * [0.02], 0.03, 0) == EVEN
    assert find_bursts(30 * turn, 0.03, 4) == EVEN
    assert find_bursts(99 * [0.0] + [0.1], 0.03, 0) == EVEN  # a hiccup that costs 3 %
    assert find_bursts([], 0.03, 0) == EVEN


def test_a_burst_is_known_by_its_length_and_its_wait():
    found = find_bursts(10 * ([0.5] + 15 * [0.0]), 0.047, 0)
    assert (found.batches, found.wait_s, found.seen) == pytest.approx((16, 0.5, 10))
    assert found.every_s == pytest.approx(16 * 0.047)


def test_blocks_do_not_grow_for_a_single_hiccup():
    once = find_bursts([0.0, 2.0, *30 * [0.0]], 0.02, 0)
    assert once.seen == pytest.approx(1)
    assert once.wanted_s == 0.0


def test_what_is_said_to_be_left_grows_with_the_budget_of_a_slow_job():
    # Guards: 'at most 0 s' for 28 to 53 s.
    told, now_s = [], [100.0]
    time = Timekeeper(MeasureOptions(), told.append, lambda: now_s[0])
    time.tell("recording")
    now_s[0] = 110.0
    time.ends_at(231.5)
    time.tell("measuring")
    time.tell("tracing")
    assert [update.elapsed_s for update in told] == [0.0, 10.0, 10.0]
    first, *others = [update.budget_s for update in told]
    assert first < 60
    assert all(130 < budget_s < 133 for budget_s in others)
