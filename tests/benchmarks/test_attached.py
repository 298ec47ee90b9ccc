"""Judgements of the bench on `bottleneck attach`; every number is invented."""

import pytest

from benchmarks.attached import (
    LINES,
    LOOPS,
    Attached,
    Looped,
    Slowed,
    attached_table,
    check_attached,
    check_loops,
    check_slowed,
)
from benchmarks.planted import PLANTED, find_planted
from bottleneck.results.records import Interval


def attached(name="load_spin", **changes):
    fields = {
        "seconds": 16.0, "truth": 0.6, "state": "input_bound", "share": Interval(0.58, 0.5, 0.66),
        "function": LINES.get(name, ""),
    }  # fmt: skip
    return Attached(find_planted(name), **{**fields, **changes})


def slowed(*ratios):
    return Slowed(find_planted("load_spin"), ratios, 0.01)


def test_lines_are_of_planted_jobs_that_wait():
    assert {*LINES} <= {one.name for one in PLANTED if one.state == "input_bound"}


def test_right_answers_hold_all_bars():
    assert all(check.held for check in check_attached([attached(name) for name in LINES]))


@pytest.mark.parametrize(
    ("truth", "state", "held"),
    [
        (0.60, "input_bound", True),
        (0.60, "undecided", False),
        (0.07, "undecided", True),
        (0.07, "input_bound", True),
        (0.03, "device_bound", True),
        (0.03, "undecided", False),
        (0.35, "device_bound", False),
    ],
)
def test_states_are_judged_by_the_loops_own_clocks_and_none_is_wrong_at_the_border(truth, state, held):
    assert check_attached([attached("device_bound", state=state, truth=truth)])[0].held == held


def test_a_failure_is_no_right_state():
    failed = attached(state="", share=None, failure="Error: no")
    assert check_attached([failed])[0].off == ("load_spin: Error: no",)


@pytest.mark.parametrize(("of_ten", "held"), [(9, True), (8, False)])
def test_nine_of_ten_lines_are_right_also_where_the_class_is_not_known(of_ten, held):
    tried = [attached(function="Load.__call__" if n < of_ten else "main") for n in range(9)]
    tried.append(attached(function="__call__" if of_ten > 8 else "main"))
    assert check_attached(tried)[1].held == held


def test_a_job_without_a_line_of_its_own_is_not_counted():
    assert check_attached([attached("handoff_objects", function="main"), attached()])[1].measured == "1 of 1"


@pytest.mark.parametrize(("truth", "agrees"), [(0.48, True), (0.46, False), (0.68, True), (0.70, False)])
def test_a_share_agrees_within_its_interval_and_three_points(truth, agrees):
    assert attached(truth=truth).agrees == agrees


def test_a_late_answer_and_a_slow_job_are_missed():
    assert not check_attached([attached(seconds=21.0)])[3].held
    assert check_slowed([slowed(0.995, 1.0, 0.992)]).held
    assert check_slowed([slowed(0.995, 1.0, 0.992), slowed(0.98, 0.985, 0.98)]).missed


def test_a_pace_that_is_not_known_is_not_compared():
    assert check_slowed([slowed(0.77, 0.85, 1.35)]).held is None


def looped(kind="get_batch", **changes):
    fields = {"seconds": 32.0, "truth": 0.6, "share": Interval(0.58, 0.5, 0.66), "line": f"Of.{LOOPS[kind]}"}
    return Looped(kind, **{**fields, **changes})


def test_loops_are_right_in_share_and_line():
    assert check_loops([looped(kind) for kind in LOOPS]).held
    assert check_loops([looped(truth=0.70)]).missed
    assert check_loops([looped(line="main")]).missed
    assert check_loops([looped(share=None, failure="no")]).off == ("get_batch: no for 60.0%, Of.read",)


def test_the_table_has_a_row_for_each_job():
    assert len(attached_table([attached(), attached("stream")]).splitlines()) == 4
