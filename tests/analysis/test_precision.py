import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottleneck.analysis.costs import Costs
from bottleneck.analysis.readings import read
from bottleneck.analysis.statistics import Spread
from bottleneck.analysis.stopping import costs_are_precise, is_precise
from bottleneck.analysis.verdict import further_rounds, loss, state
from bottleneck.results.records import Interval
from tests.analysis.simulated import AUGMENT_BOUND, DEVICE_BOUND, map_coupled, measure


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.051, 0.30, "input_bound"),
        (0.051, 0.09, "input_bound"),
        (0.049, 0.30, "undecided"),
        (0.049, 0.099, "device_bound"),
        (-0.02, 0.02, "device_bound"),
        (-0.02, 0.11, "undecided"),
    ],
)
def test_state_follows_from_the_bounds_of_the_loss(low, high, expected):
    efficiency = Interval(1 - (low + high) / 2, 1 - high, 1 - low)

    assert state(efficiency) == expected
    assert loss(efficiency).low == pytest.approx(low)
    assert loss(efficiency).high == pytest.approx(high)


def test_nothing_is_decided_without_an_efficiency():
    assert state(None) == "undecided"
    assert further_rounds(None) == 6


def test_a_decided_state_needs_no_further_rounds():
    assert further_rounds(Spread(math.log(0.5), 0.001, 6)) is None


@given(st.floats(0.0, 0.5), st.floats(0.001, 0.3), st.integers(6, 40))
def test_further_rounds_is_the_smallest_number_that_decides(lost, deviation, rounds):
    def after(total):
        return state(Spread(math.log(1 - lost), deviation / math.sqrt(total), total).exponentiated())

    further = further_rounds(Spread(math.log(1 - lost), deviation / math.sqrt(rounds), rounds))

    if after(rounds) != "undecided" or after(10 * rounds) == "undecided":
        assert further is None
    else:
        assert further >= 3
        assert after(rounds + further) != "undecided"
        assert further == 3 or after(rounds + further - 1) == "undecided"


def test_a_wide_interval_is_not_said_to_need_one_round_more():
    # Guards: a loss of 4 to 71 % stood beside "About 1 further round would decide it".
    wide = Spread(-0.64, 0.2326, 6)
    assert loss(wide.exponentiated()).low == pytest.approx(0.04, abs=0.002)
    assert further_rounds(wide) == 3


@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_a_few_rounds_foretell_nothing_but_that_it_takes_more(rounds):
    # Guards: three rounds on a busy machine asked for a budget of three hours.
    assert further_rounds(Spread(math.log(0.95), 0.5, rounds)) == 6 - rounds


@pytest.mark.parametrize(
    ("job", "noise", "rounds", "precise"),
    [
        (AUGMENT_BOUND, 0.01, 8, True),
        (DEVICE_BOUND, 0.01, 8, True),
        (AUGMENT_BOUND, 0.2, 8, False),
        # Half widths of about 8 points: a tenth of the share of compute, yet far too wide for a loss of 1 %.
        (DEVICE_BOUND, 0.06, 6, False),
        (AUGMENT_BOUND, 0, 6, True),
        (AUGMENT_BOUND, 0, 5, False),  # never before six rounds
    ],
)
def test_an_answer_is_precise_when_every_half_width_is_small(job, noise, rounds, precise):
    assert is_precise(read(measure(job, noise=noise, rounds=rounds))) == precise


def test_not_precise_while_a_stage_is_unmeasured():
    whole = measure(AUGMENT_BOUND, noise=0, rounds=6)
    assert not is_precise(read(map_coupled(whole, lambda e: None if e.name == "host" else e.coupled)))


# --- the costs of stages -----------------------------------------------------------------------------------


def left_out(noise, seconds=(0.010, 0.012)):
    """A measurement whose workers need these seconds per batch without and with the stage `load`."""
    job = replace(AUGMENT_BOUND, workers=seconds[1], alone={"load": seconds[0]})
    readings = read(measure(job, noise=noise, rounds=10))
    return readings, Costs(readings)


def test_a_cost_is_precise_when_its_half_width_is_a_twentieth_of_it():
    assert costs_are_precise(*left_out(0.001))
    assert not costs_are_precise(*left_out(0.02))


def test_of_a_stage_that_costs_nearly_nothing_no_more_is_asked_than_a_part_of_the_step_that_nobody_notices():
    assert costs_are_precise(*left_out(0.003, seconds=(0.0100, 0.0101)))
    assert not costs_are_precise(*left_out(0.05, seconds=(0.0100, 0.0101)))


def test_what_no_repetition_would_show_asks_for_no_more_rounds():
    readings = read(measure(replace(AUGMENT_BOUND, workers=0.012, serving=0.020, alone={"load": 0.018}), noise=0.0005))
    costs = Costs(readings)
    assert costs.costing("load").below_s > 0.003
    assert costs_are_precise(readings, costs)


def test_where_nothing_was_left_out_of_the_loader_alone_there_is_nothing_to_refine():
    readings = read(measure(AUGMENT_BOUND, noise=0.1))
    assert costs_are_precise(readings, Costs(readings))
