"""Tunings of planted jobs are judged by what they keep and by the gain of plain loops."""

from dataclasses import replace

import pytest

from benchmarks.paired import Realised
from benchmarks.tuned import JOBS, Planted, Tried, changed_fields, check_tuned, tuned_table
from bottleneck.results.records import Interval, Rate
from bottleneck.results.tuning import Rung, TuningResult

RATE = Rate(100.0, 99.0, 101.0, 0.01, ())
GAIN = Interval(3.3, 3.2, 3.4)
WORKERS, TWO = JOBS[0], JOBS[-1]


def tuning(gain, *rungs):
    ladder = tuple(Rung(settings, (), RATE, None, None, None, None, None, None) for settings in ((), *rungs))
    return TuningResult(1, "tuning", None, "", {}, {}, "", gain, ladder, (), (), None, None, (), 60.0)


def tried(planted, *rungs, gain=GAIN, ratio=3.3):
    return Tried(planted, tuning(gain, *rungs), Realised((ratio, ratio * 1.001)))


def test_just_what_pays_is_right():
    right = tried(WORKERS, ("num_workers=4",))
    assert not right.miss
    assert "kept nothing" in tried(WORKERS).miss
    assert "in_order, num_workers" in tried(WORKERS, ("num_workers=4",), ("in_order",)).miss
    assert "3" in tried(WORKERS, ("num_workers=3",)).miss
    assert check_tuned([right]).held
    assert "num_workers=4" in tuned_table([right])


@pytest.mark.parametrize(("ratio", "held"), [(3.45, True), (3.6, False), (3.12, True), (2.9, False)])
def test_a_gain_that_plain_loops_do_not_have_is_off(ratio, held):
    assert (not tried(WORKERS, ("num_workers=4",), ratio=ratio).miss) == held


@pytest.mark.parametrize(("plain", "held"), [(104.0, True), (105.0, False), (96.2, True), (95.0, False)])
def test_a_throughput_that_plain_loops_do_not_have_is_off_also_where_nothing_was_kept(plain, held):
    unchanged = Tried(replace(WORKERS, kept=frozenset()), tuning(None), plain=plain)
    assert (not unchanged.miss) == held
    assert f"{plain:.1f}" in tuned_table([unchanged])


def test_the_changed_job_is_the_one_that_plain_loops_run():
    fields = changed_fields(TWO, {"quick-loading": None, "quick-step": None})
    assert fields["train_step"] is TWO.own["quick-step"]["train_step"]
    assert fields["dataset"] is TWO.own["quick-loading"]["dataset"]
    none = changed_fields(replace(WORKERS), {"num_workers": 0})
    assert none["num_workers"] == 0
    assert "prefetch_factor" not in none
    assert isinstance(WORKERS, Planted)
