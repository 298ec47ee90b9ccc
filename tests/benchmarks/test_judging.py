"""How the benchmark judges: right and wrong verdicts, costs, ratios, agreement, tables."""

import math
from types import SimpleNamespace

import pytest

from benchmarks.checks import Check, checks_table, markdown_table, milliseconds, percent
from benchmarks.evidence_cost import TIMES_AS_OFTEN, EvidenceCost, check_evidence_cost, evidence_cost_table
from benchmarks.machine import describe_machine, describe_steadiness
from benchmarks.observer import ObserverEffect, check_observer, enough_pairs, mean_ratio
from benchmarks.planted import find_planted
from benchmarks.resources import Footprint, agree, check_length, check_slow_steps, check_time
from benchmarks.verdicts import CostFound, Trial, check_trials, read_trial, verdicts_table
from bottleneck.results.records import Interval

LAST_STRAW = find_planted("last_straw")


def trial(**changes) -> Trial:
    fields = {
        "planted": LAST_STRAW,
        "seconds": 30.0,
        "state": "input_bound",
        "bottleneck": "augment",
        "efficiency": Interval(0.73, 0.72, 0.74),
        "coupled_raw_s": 0.022,
        "costs": (CostFound("augment", 0.014, Interval(0.0145, 0.0140, 0.0150)),),
    }
    return Trial(**{**fields, **changes})


def test_a_verdict_is_right_when_state_and_bottleneck_are():
    assert trial().right
    assert not trial(bottleneck="load").right
    assert not trial(state="undecided").right


@pytest.mark.parametrize(("estimate_s", "within"), [(0.0153, True), (0.0127, True), (0.0156, False), (0.0124, False)])
def test_a_cost_is_within_ten_percent_or_not(estimate_s, within):
    cost = CostFound("augment", 0.014, Interval(estimate_s, 0, 1))
    assert cost.within_tolerance is within


def test_a_cost_that_noise_may_have_drawn_is_told_from_one_that_is_wrong():
    noisy, wrong = (CostFound("load", 0.004, Interval(0.005, low, 0.006)) for low in (0.0043, 0.0045))
    missing = CostFound("load", 0.004, None)
    assert not any(cost.within_tolerance for cost in (noisy, wrong, missing))
    assert [cost.surely_off for cost in (noisy, wrong, missing)] == [False, True, True]
    _, costs = check_trials([trial(costs=(noisy,)), trial(costs=(wrong,))])
    assert not costs.held
    assert "0 of 2 within; 1 off by what their intervals allow for" in costs.measured
    assert "1 off by more than that" in costs.measured


def test_a_cost_that_was_not_estimated_is_off():
    assert not CostFound("augment", 0.014, None).within_tolerance


def test_checks_name_what_is_wrong():
    off = CostFound("load", 0.004, Interval(0.008, 0.007, 0.009))
    verdicts, costs = check_trials([trial(), trial(bottleneck="load", costs=(off,))])
    assert not verdicts.held
    assert "1 of 2" in verdicts.measured
    assert "last_straw/load (+100.0 %)" in costs.measured
    assert not costs.held
    assert all(check.held for check in check_trials([trial()]))


def test_a_failed_diagnosis_is_shown_as_wrong():
    failed = trial(state="failed", bottleneck=None, efficiency=None, costs=(), failure="ValueError: no | pipe")
    assert not check_trials([failed])[0].held
    assert "ValueError: no \\| pipe" in verdicts_table([failed])


def test_a_trial_is_read_from_a_result():
    stages = [
        SimpleNamespace(name="augment", cost_s_per_batch=Interval(0.0142, 0.014, 0.0144)),
        SimpleNamespace(name="load", cost_s_per_batch=None),
    ]
    experiments = [
        SimpleNamespace(name="device", coupled=SimpleNamespace(seconds_per_batch=0.016)),
        SimpleNamespace(name="raw", coupled=SimpleNamespace(seconds_per_batch=0.0221)),
    ]
    result = SimpleNamespace(
        stages=stages,
        experiments=experiments,
        verdict=SimpleNamespace(state="input_bound", bottleneck="augment", efficiency=None),
        cost=SimpleNamespace(cache_bytes=123),
        evidence={},
    )
    read = read_trial(LAST_STRAW, result, 12.0)
    assert read.right
    assert read.coupled_raw_s == 0.0221
    assert read.cache_bytes == 123
    errors = {cost.stage: cost.error for cost in read.costs}
    assert errors["augment"] == pytest.approx(0.0142 / 0.014 - 1)
    assert errors["load"] is None
    assert set(errors) == {"load", "augment", "collate", "compute"}


def test_single_transforms_are_read_beside_the_stages():
    planted = find_planted("composed")
    row = {"name": "Blur", "calls_per_sample": 1.0, "wall_s_per_call": 0.0007}
    result = SimpleNamespace(
        stages=[], experiments=[], verdict=SimpleNamespace(state="input_bound", bottleneck="augment", efficiency=None),
        cost=SimpleNamespace(cache_bytes=0), evidence={"transforms": [row]},
    )  # fmt: skip
    errors = {cost.stage: cost.error for cost in read_trial(planted, result, 1.0).costs}
    assert errors["Blur"] == pytest.approx(0.0007 * 16 / 0.011 - 1)
    assert errors["Jitter"] is None


def test_the_interval_of_the_ratio_is_students():
    ratios = [math.exp(x) for x in (0.00, 0.01, 0.02)]
    found = mean_ratio(ratios)
    half = 4.302653 * 0.01 / math.sqrt(3)  # t for two degrees of freedom
    assert found.estimate == pytest.approx(math.exp(0.01))
    assert (found.low, found.high) == pytest.approx((math.exp(0.01 - half), math.exp(0.01 + half)))


def test_pairs_are_taken_until_their_ratio_is_known():
    rule = {"fewest": 3, "most": 5, "precision": 0.01}
    assert not enough_pairs([1.0, 1.0], **rule)
    assert enough_pairs([1.0, 1.001, 0.999], **rule)
    assert not enough_pairs([1.0, 1.05, 0.95], **rule)
    assert enough_pairs([1.0, 1.05, 0.95, 1.05, 0.95], **rule)


def test_one_pair_has_no_interval():
    assert mean_ratio([1.01]).high == math.inf


def test_the_worst_observer_effect_counts():
    def effect(name, estimate):
        return ObserverEffect(find_planted(name), (estimate,), Interval(estimate, 0.9, 1.1))

    check = check_observer([effect("load_wait", 1.01), effect("no_workers", 0.97)])
    assert not check.held
    assert "no_workers" in check.measured
    assert check_observer([effect("load_wait", 1.015)]).held


def test_agreement_wants_the_same_verdict_and_overlapping_intervals():
    assert agree(trial(), trial(efficiency=Interval(0.735, 0.735, 0.75)))
    assert not agree(trial(), trial(efficiency=Interval(0.78, 0.77, 0.79)))
    assert not agree(trial(), trial(bottleneck="load"))
    assert not agree(trial(), trial(efficiency=None))


def test_only_steps_that_the_bar_speaks_of_are_timed():
    slow = trial(planted=find_planted("device_bound"), seconds=500.0)
    assert check_time([trial(seconds=60.0), slow], 60.0, "default").held
    assert not check_time([trial(seconds=60.1), slow], 60.0, "default").held


def test_a_slow_step_has_to_be_right_and_in_time():
    assert check_slow_steps([trial(seconds=179.0)]).held
    assert not check_slow_steps([trial(seconds=181.0)]).held
    assert not check_slow_steps([trial(bottleneck="load", seconds=10.0)]).held


def test_the_length_may_change_neither_time_nor_memory():
    short = Footprint(10**3, 20.0, 400 * 2**20)
    assert check_length(short, Footprint(10**8, 22.0, 420 * 2**20)).held
    assert not check_length(short, Footprint(10**8, 22.0, 800 * 2**20)).held
    assert not check_length(short, Footprint(10**8, 40.0, 400 * 2**20)).held


def test_tables_are_exact():
    assert markdown_table(("a", "long title"), [("x|y", "1\n2")]) == (
        "| a    | long title |\n|------|------------|\n| x\\|y | 1 2        |"
    )
    assert "**missed**" in checks_table([Check("w", "b", "m", held=False)])


def test_numbers_are_written_with_their_unit():
    assert milliseconds(0.01234) == "12.3 ms"
    assert milliseconds(None) == "–"
    assert percent(0.1) == "+10.0 %"


def test_the_machine_is_described_without_its_name():
    import platform

    described = describe_machine()
    assert {"cores", "memory", "python", "torch"} <= set(described)
    assert platform.node() not in described.values()


def test_the_steadiness_of_the_machine_is_told_from_best_to_worst():
    best, median, slow = (float(part.split()[0]) for part in describe_steadiness(0.05).split(", "))
    assert 0 < best <= median <= slow


@pytest.mark.parametrize(("low", "high", "held"), [(0.998, 1.004, True), (0.99, 1.02, False), (1.02, 1.03, False)])
def test_watching_is_cheap_only_where_that_is_sure(low, high, held):
    # Samples were taken more often than in a diagnosis, so that what they cost shows.
    low, middle, high = (1 + TIMES_AS_OFTEN * (ratio - 1) for ratio in (low, (low + high) / 2, high))
    cost = EvidenceCost("load_wait", 12, Interval(middle, low, high))
    fine = EvidenceCost("other", 8, Interval(1.0, 0.999, 1.001))
    assert check_evidence_cost([fine, cost]).held is held
    assert f"{(high - 1) / TIMES_AS_OFTEN:+.2%} (load_wait)" in check_evidence_cost([fine, cost]).measured
    assert ("**missed**" in evidence_cost_table([cost])) is not held
