"""What the job would get without some stages: as measured, and never more than without all of its input."""

from dataclasses import replace

import pytest

from bottleneck.analysis.what_if import what_if
from bottleneck.results.records import Interval
from tests.support.results_factory import make_empty_result, make_interval, make_rate, make_result


def held_by_two():
    """Augment and load take half of the loader each: neither gains anything by itself, both together do."""
    steps = {"before_collate": 0.0100, "before_augment": 0.0240, "raw": 0.0247}
    result = make_result()
    experiments = tuple(
        replace(e, coupled=make_rate(steps[e.name])) if e.name in steps else e for e in result.experiments
    )
    stages = tuple(
        replace(s, gain_if_free=make_interval(1.02, 0.05), cost_s_per_batch=make_interval(0.012, 0.0003))
        if s.name in ("augment", "load")
        else s
        for s in result.stages
    )
    return replace(result, experiments=experiments, stages=stages)


def gains(result):
    return {found.stages: found.gain.estimate for found in what_if(result)}


def test_stages_that_surely_gain_come_first_and_all_of_the_input_last():
    found = gains(make_result())
    assert list(found) == [("augment",), ("load",), ()]
    assert found == pytest.approx({("augment",): 2.489, ("load",): 1.0834, (): 2.62}, rel=1e-3)


def test_stages_together_are_those_of_the_experiment_that_serves_them():
    found = gains(held_by_two())
    assert found == {("load", "augment"): pytest.approx(2.47, rel=0.01), (): 2.62}


def test_together_are_told_where_they_gain_more_than_any_of_them():
    assert ("load", "augment") not in gains(make_result())  # 2.53, and augment by itself 2.49


def test_no_stage_gains_more_than_all_of_the_input():
    result = make_result()
    headroom = Interval(1.5, 1.4, 1.6)
    found = what_if(replace(result, verdict=replace(result.verdict, headroom=headroom)))
    # Augment by itself is said to gain 2.49x: of two numbers that cannot both be true, neither has a row.
    assert [one.stages for one in found] == [("load",), ("load", "augment"), ()]
    assert all(one.gain.estimate <= 1.5 and one.gain.high <= 1.6 for one in found)


def test_a_gain_that_is_not_sure_or_makes_no_sense_is_left_out():
    for gain in (Interval(1.3, 0.9, 1.8), Interval(float("inf"), 1.0, 2.0), Interval(-1.0, 1.1, 2.0), None):
        result = make_result()
        stages = tuple(replace(stage, gain_if_free=gain) for stage in result.stages)
        assert list(gains(replace(result, stages=stages))) in ([()], [("load", "augment"), ()])
    assert what_if(make_empty_result()) == ()
