"""Advice and tunings are judged by the gains of plain loops."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from benchmarks import advised, tuned
from benchmarks.advised import JOBS, Followed, advised_table, check_advice, follow_all
from benchmarks.paired import Realised
from benchmarks.plain import plain_loader
from benchmarks.tuned import Planted, Tried, changed_fields, check_tuned, tuned_table
from benchmarks.work import Work
from bottleneck.results.records import Advice, Interval, Rate
from bottleneck.results.tuning import Rung, TuningResult

# --- advice that is followed --------------------------------------------------------------------------------


CALM = [job for job in JOBS if not job.needs_cuda]


def advice(gain=None, basis=None, how="DataLoader(..., num_workers=5); try it with --set num_workers=5"):
    return Advice("use-workers", None, "", "", how, {}, gain=gain, gain_basis=basis)


ABOUT = advice(Interval(1.5, 1.3, 1.7), "estimated")
UP_TO = advice(Interval(1.5, 1.0, 1.5), "estimated")
AT_MOST = advice(Interval(1.5, 1.4, 1.6), "measured")


def followed(given, *ratios):
    return Followed("a table", "use-workers", given, Realised(ratios))


def test_a_prediction_may_be_a_quarter_over_what_was_realised():
    assert not followed(ABOUT, 1.25, 1.26).miss
    assert "predicted 1.50x" in followed(ABOUT, 1.15, 1.16).miss
    assert not followed(ABOUT, 1.9, 2.0).miss


@pytest.mark.parametrize("given", [UP_TO, AT_MOST])
def test_a_bound_may_be_far_over_but_not_below(given):
    assert given is not None
    assert followed(given, 1.1, 1.11).says_at_most
    assert not followed(given, 1.1, 1.11).miss
    assert "said to be at most" in followed(given, 1.80, 1.81).miss


@pytest.mark.parametrize("given", [ABOUT, UP_TO, AT_MOST])
def test_advice_that_makes_a_job_slower_is_always_off(given):
    assert "slower" in followed(given, 0.69, 0.70).miss


def test_advice_that_was_not_given_or_claims_nothing_predicts_nothing():
    assert not followed(None, 0.7, 0.7).miss
    assert not followed(advice(), 0.7, 0.7).miss
    table = advised_table([followed(None, 1.0, 1.0), followed(advice(), 1.0, 1.0), followed(UP_TO, 0.5, 0.51)])
    assert "not advised" in table
    assert "no gain claimed" in table
    assert "at most 1.50x" in table
    assert "**off**" in table


def test_what_is_off_is_listed_and_bounds_are_counted():
    check = check_advice([followed(ABOUT, 1.5, 1.5), followed(UP_TO, 0.5, 0.51), followed(None, 1.0, 1.0)])
    assert not check.held
    assert check.measured == "2 of 3; 2 predict a gain, 1 of them 'at most'"
    assert len(check.off) == 1
    assert check.off[0].startswith("a table (use-workers): ")


@pytest.mark.parametrize("job", CALM, ids=lambda job: job.name)
def test_the_changed_job_gives_the_same_batches(job, monkeypatch):
    monkeypatch.setattr(Work, "complete", lambda self, mark, times=1.0: None)
    changed = job.change(job.build(), None)
    batches = [
        next(iter(plain_loader({**fields, "num_workers": 0, "prefetch_factor": None})))
        for fields in (job.build(), changed)
    ]
    assert [part.shape for part in batches[0]] == [part.shape for part in batches[1]]
    assert torch.equal(batches[0][1], batches[1][1])
    job.build()["train_step"](batches[0])


def test_jobs_for_a_device_that_is_not_there_are_left_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(advised, "run_diagnosis", lambda fields, quick: pytest.fail("not to be run"))
    found = follow_all([job for job in JOBS if job.needs_cuda])
    assert "left out: there is no CUDA device" in advised_table(found)
    assert check_advice(found).measured == "0 of 0; 0 predict a gain, 0 of them 'at most'"


def test_advice_is_applied_to_the_job_that_was_diagnosed(monkeypatch):
    result = SimpleNamespace(advice=(ABOUT,))
    pairs = []
    monkeypatch.setattr(advised, "run_diagnosis", lambda fields, quick: (result, 1.0, ""))
    monkeypatch.setattr(
        advised, "realise", lambda before, after, pairs: (realised.append((before, after)), Realised((1.4, 1.4)))[1]
    )
    realised = pairs
    (one,) = follow_all([JOBS[0]], quick=True)
    assert one.predicted == ABOUT.gain
    ((before, after),) = realised
    assert (before["num_workers"], after["num_workers"]) == (0, 5)


# --- tunings ------------------------------------------------------------------------------------------------


RATE = Rate(100.0, 99.0, 101.0, 0.01, ())
GAIN = Interval(3.3, 3.2, 3.4)
WORKERS, TWO = tuned.JOBS[0], tuned.JOBS[-1]


def tuning(gain, *rungs):
    ladder = tuple(Rung(settings, (), RATE, None, None, None, None, None) for settings in ((), *rungs))
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
