"""The end of a ladder, once it is known well enough, its beginning, and the budget that it leaves to attempts."""

import re
import statistics

import pytest
from torch import nn

from bottleneck.errors import UsageError
from bottleneck.results.records import Block
from bottleneck.tuner.change import Change
from bottleneck.tuner.record import conclude
from bottleneck.tuner.rungs import MAX_ROUNDS, MIN_ROUNDS, confirmed_rungs
from tests.tuning.world import Lane, World, job, tuned, tuning_of


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch):
    monkeypatch.setattr("bottleneck.tuner.lanes.usable_cores", lambda: 16.0)


def rounds_of(record):
    return [len(rung.rate.blocks) for rung in record.ladder]


def outcomes(record):
    return {trial.setting: trial.outcome for trial in record.trials}


def half_widths(record):
    """Return the relative error of each gain in the ladder."""
    gains = [gain for rung in record.ladder[1:] for gain in (rung.gain, rung.total)]
    return [(gain.high - gain.low) / 2 / gain.estimate for gain in gains]


def gaining(seed, noise):
    """Tunes a job that twice as many workers make 1.9x faster."""
    world = World(load_s=0.0016, step_s=0.0001, start_s=0.1, noise=noise)
    world.random.seed(seed)
    return tuned(world, ["num_workers"], budget_s=900.0, pipeline=job(num_workers=8))[0]


# --- how many rounds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.005, 0.07])
def test_a_ladder_goes_on_until_its_gains_are_known_to_a_tenth(noise):
    records = [gaining(seed, noise) for seed in range(8)]
    assert [outcomes(record) for record in records] == [{"num_workers=16": "kept"}] * 8
    assert all(max(half_widths(record)) <= 0.1 or rounds_of(record)[0] == MAX_ROUNDS for record in records)


def test_a_noisy_ladder_takes_more_rounds_than_a_quiet_one():
    quiet, noisy = ([rounds_of(gaining(seed, noise))[0] for seed in range(8)] for noise in (0.005, 0.09))
    assert quiet == [MIN_ROUNDS] * 8
    assert statistics.median(noisy) >= 2 * MIN_ROUNDS


def test_no_round_begins_that_the_budget_has_no_room_for():
    world = World(load_s=0.004, step_s=0.0001, noise=0.15, start_s=0.1)
    world.random.seed(5)
    record, _ = tuned(world, ["num_workers"], budget_s=60.0, pipeline=job(num_workers=2))
    assert MIN_ROUNDS < rounds_of(record)[0] < MAX_ROUNDS
    assert max(half_widths(record)) > 0.1
    assert record.seconds <= 60.0


@pytest.mark.parametrize(
    ("paces", "kept"),
    [
        ((1.0,), 1),
        ((1.0, 0.5), 2),
        ((1.0, 1.0), 1),
        ((1.0, 1.02, 0.6), 3),  # the first step up is a condition of the second
        ((1.0, 0.6, 1.1), 2),
        ((1.0, 1.2, 1.1), 1),
    ],
)
def test_rungs_are_kept_up_to_the_last_that_is_clearly_faster(paces, kept):
    wobble = (0.99, 1.01, 1.0, 1.005, 0.995)
    blocks = [[Block(n, 100, pace * wobble[(n + at) % 5]) for n in range(1, 6)] for at, pace in enumerate(paces)]
    assert confirmed_rungs(blocks) == kept


# --- what a ladder begins with -------------------------------------------------------------------------------


def test_the_pairs_of_a_single_change_that_gains_much_are_rounds_of_its_ladder():
    world = World(load_s=0.02, step_s=0.0005)
    record, _ = tuned(world, ["num_workers"], pipeline=job(num_workers=8))
    (trial,) = record.trials
    assert (trial.outcome, len(trial.pairs)) == ("kept", 3)
    assert rounds_of(record) == [MIN_ROUNDS, MIN_ROUNDS]
    assert [block.round for block in record.ladder[1].rate.blocks] == [1, 2, 3, 4]
    assert record.ladder[0].rate.blocks[0].seconds == trial.pairs[0].base.seconds
    assert world.turns["changed"] == MIN_ROUNDS


def test_a_gain_that_chance_may_have_chosen_is_measured_from_the_beginning():
    world = World(load_s=0.0048, step_s=0.0001)
    record, _ = tuned(
        world, [Change("a-fifth", lambda given: given.replace(num_workers=6))], pipeline=job(num_workers=5)
    )
    (trial,) = record.trials
    assert trial.outcome == "kept"
    assert world.turns["changed"] == len(trial.pairs) + rounds_of(record)[1]


def test_where_nothing_is_kept_the_job_as_it_is_is_not_measured_once_more():
    world = World(load_s=0.0001, step_s=0.001)
    record, _ = tuned(world, [Change("same", lambda given: given.replace(model=nn.Sequential(given.model)))])
    pairs = sum(len(trial.pairs) for trial in record.trials)
    assert rounds_of(record) == [pairs]
    assert sum(world.turns.values()) == 2 + 2 * pairs


# --- what it costs -------------------------------------------------------------------------------------------


def test_time_for_the_ladder_is_set_aside_by_what_each_of_its_rungs_takes():
    # Guards: on an H100 with 16 cores, a script of two workers stopped at a third of what it could have, with 37 of
    # 102 s left, which were kept for rungs as slow as the first one. What was not tried was not even listed.
    world = World(load_s=0.0052, step_s=0.00034, start_s=2.0)
    record, _ = tuned(world, ["num_workers"], budget_s=102.0, pipeline=job(num_workers=2))
    assert [trial.setting for trial in record.trials] == ["num_workers=8", "num_workers=16"]
    assert record.ladder[-1].settings == ("num_workers=16",)
    assert record.seconds < 102.0


def test_what_was_not_tried_for_want_of_time_is_listed():
    same = [Change(f"same-{number}", lambda given: given.replace(drop_last=True)) for number in range(9)]
    record, _ = tuned(World(load_s=0.004, step_s=0.004), same, budget_s=180.0)
    assert outcomes(record)["same-0"] != "not_tried"
    assert outcomes(record)["same-8"] == "not_tried"
    assert record.seconds <= 180.0


class Minutes(Lane):
    """A visit takes far longer than its block."""

    def block(self, number):
        self.world.clock.advance(8.0)
        return super().block(number)


def test_a_visit_that_takes_long_is_made_once_to_know_how_long():
    world = World(load_s=0.0001, step_s=0.001)
    world.lane = Minutes
    with pytest.raises(UsageError, match="too short to try one change"):
        tuned(world, budget_s=40.0)
    assert world.turns["job"] == 1


# --- the script alone ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own_s", "warned"), [(0.040, False), (0.044, False), (0.050, True), (0.030, True), (None, False)]
)
def test_a_baseline_that_is_not_the_scripts_own_pace_is_told_with_both_numbers(own_s, warned):
    # As it is, the job takes 40 ms for a batch of ten.
    session = tuning_of(World(), ["num_workers"])
    session.found.own_s_per_batch = own_s
    session.run()
    record = conclude(session.found, session.best, {}, {"source": "script"})
    assert [warning.id for warning in record.warnings] == ["baseline-differs"] * warned
    if warned:
        by_itself, tuned = map(
            float,
            re.findall(
                r"(\d+(?:\.\d+)?) samples/s before the tuning, and the original job in this tuning at (\d+)",
                record.warnings[0].message,
            )[0],
        )
        assert (by_itself, tuned) == pytest.approx((10 / own_s, 250), rel=0.02)
