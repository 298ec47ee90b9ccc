"""Plain loops, and what stages, gains, advice and tunings are judged by."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from benchmarks import advised, loop, paired, tuned
from benchmarks.advised import Followed
from benchmarks.checks import checks_table
from benchmarks.datasets import Step
from benchmarks.efficiencies import Judged, check_judged, judged_table
from benchmarks.gains import JOBS, Gain
from benchmarks.loop import LoopTime, TimedLoop
from benchmarks.observer import Timed, measure_observer_effect
from benchmarks.paired import Realised, realise
from benchmarks.plain import plain_loader
from benchmarks.planted import find_planted
from benchmarks.taken_out import without
from benchmarks.tuned import Tried, check_tuned, tuned_table
from benchmarks.work import Work, wait
from bottleneck.measure.rounds.turns import StealTime
from bottleneck.results.records import Advice, Interval, Rate
from bottleneck.results.tuning import Rung, TuningResult
from tests.support.clock import FakeClock

# --- a loop and its step ------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    clock = FakeClock()
    # A step takes a tenth longer than it was planned to.
    monkeypatch.setattr(Work, "complete", lambda self, mark, times=1.0: clock.advance(1.1 * self.seconds * times))
    return clock


def timed(clock, monkeypatch, sizes, loading_s, step=None, workers=0):
    def batches():
        for number in range(10**6):
            clock.advance(loading_s[number % len(loading_s)])
            yield sizes[number % len(sizes)]

    monkeypatch.setattr(loop, "plain_loader", lambda fields: batches())
    fields = {"train_step": step or Step(wait(0.01)), "device": "cpu", "num_workers": workers}
    return TimedLoop(fields, clock, clock.advance)


def test_the_efficiency_is_that_of_the_real_step_in_the_real_loop(clock, monkeypatch):
    found = timed(clock, monkeypatch, [1], [0.009]).run(60)
    assert found.efficiency == pytest.approx(0.011 / 0.020)
    assert found.step_s == pytest.approx(0.011)
    assert found.seconds == pytest.approx(60, abs=0.1)
    assert found.batches == pytest.approx(3000, abs=2)
    assert found.error < 1e-4


def judged(name, truth, reported, **changes):
    fields = {"state": "input_bound", "seconds": 50.0, "what": "step 20 ms"} | changes
    return Judged(name, plain=LoopTime(1000, 60.0, 0.02, truth, 0.002), reported=reported, **fields)


@pytest.mark.parametrize(("truth", "right"), [(0.795, True), (0.789, False), (0.911, False), (0.905, True)])
def test_the_truth_is_in_the_interval_widened_by_a_point(truth, right):
    assert judged("a", truth, Interval(0.85, 0.80, 0.90)).right is right


def test_one_in_twenty_may_be_out_and_is_listed_below_the_table():
    held, out = judged("good", 0.85, Interval(0.85, 0.8, 0.9)), judged("bad", 0.748, Interval(0.949, 0.938, 0.96))
    check = check_judged("regimes", [held] * 19 + [out])
    assert check.held
    assert check.off == ("bad: out by 19.0 points",)
    assert not check_judged("regimes", [held] * 18 + [out]).held
    table = judged_table([held, out])
    assert "**out by 19.0**" in table
    assert "74.8% ± 0.2%" in table
    assert max(map(len, checks_table([check]).splitlines())) < 300


# --- gains of stages that are taken out ---------------------------------------------------------------------


STAGES = [(job, stage) for job in JOBS for stage in job.stages]


@pytest.fixture
def done(monkeypatch):
    seconds: list[float] = []
    monkeypatch.setattr(Work, "complete", lambda self, mark, times=1.0: seconds.append(self.seconds))
    return seconds


def one_batch(fields, done):
    """Return the work of one batch, and the batch; not the first one, at which a stage that is taken out may work."""
    batches = iter(plain_loader({**fields, "num_workers": 0, "prefetch_factor": None}))
    next(batches)
    done.clear()
    batch = next(batches)
    if "to_device" in fields:
        fields["to_device"](batch, "cpu")
    return sum(done), batch


@pytest.mark.parametrize(("job", "stage"), STAGES, ids=[f"{job.name}/{stage}" for job, stage in STAGES])
def test_a_stage_that_is_taken_out_costs_nothing_and_leaves_the_shape(job, stage, done):
    all_s, batch = one_batch(job.build(), done)
    left_s, same = one_batch(without(job.build(), stage), done)
    assert left_s < all_s - 1e-3
    assert [part.shape for part in batch] == [part.shape for part in same]
    assert [part.dtype for part in batch] == [part.dtype for part in same]


class Loop:
    """Blocks of a pace that drifts, and only with time."""

    drift = 1.0

    def __init__(self, fields):
        self.pace_s, self.blocks = fields["pace_s"], fields["blocks"]

    def run_block(self, batches):
        Loop.drift *= 1.02
        self.blocks.append(batches)
        return Timed(self.pace_s * Loop.drift, StealTime())


def test_pairs_take_turns_in_coming_first_so_that_drift_does_not_matter(monkeypatch):
    monkeypatch.setattr(paired, "PlainLoop", Loop)
    before, after = ({"pace_s": pace_s, "blocks": [], "num_workers": 8} for pace_s in (0.03, 0.02))
    found = realise(before, after, pairs=8, block_s=1.0)
    assert found.gain.estimate == pytest.approx(1.5, rel=1e-6)
    assert len(found.ratios) == 8
    assert min(before["blocks"][1:]) >= 4 * 16  # four queues
    assert all(batches % 8 == 0 for batches in before["blocks"] + after["blocks"])


def gain(truth, reported, **changes):
    return Gain("last_straw", "augment", Realised((truth, truth)), reported, **changes)


@pytest.mark.parametrize(("truth", "right"), [(1.20, True), (1.171, True), (1.169, False), (1.331, False)])
def test_the_truth_is_in_the_interval_widened_by_three_hundredths(truth, right):
    assert gain(truth, Interval(1.25, 1.20, 1.30)).right is right


# --- the job under diagnosis --------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("name", ["load_wait", "no_workers"])
def test_pairs_of_a_plain_loop_and_of_the_job_under_diagnosis(name, monkeypatch):
    monkeypatch.setattr("benchmarks.observer.BLOCK_S", 0.1)
    effect = measure_observer_effect(
        name, partial(replace(find_planted(name), batch_size=4).build, length=1_000_000), most_pairs=3
    )
    assert len(effect.ratios) == 3
    assert all(0.5 < ratio < 2.0 for ratio in effect.ratios)
    assert effect.ratio.low < effect.ratio.estimate < effect.ratio.high


# --- advice that is followed --------------------------------------------------------------------------------


CALM = [job for job in advised.JOBS if not job.needs_cuda]


def advice(gain=None, basis=None, how="DataLoader(..., num_workers=5); try it with --set num_workers=5"):
    return Advice("use-workers", None, "", "", how, {}, gain=gain, gain_basis=basis)


ABOUT = advice(Interval(1.5, 1.3, 1.7), "estimated")
UP_TO = advice(Interval(1.5, 1.0, 1.5), "estimated")
AT_MOST = replace(advice(Interval(1.5, 1.4, 1.6), "measured"), id="cut-fetch")


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


# --- tunings ------------------------------------------------------------------------------------------------


RATE = Rate(100.0, 99.0, 101.0, 0.01, ())
GAIN = Interval(3.3, 3.2, 3.4)
WORKERS = tuned.JOBS[0]


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
    assert "took 60 s" in tried(replace(WORKERS, within_s=50.0), ("num_workers=4",)).miss
    assert check_tuned([right]).held
    assert "num_workers=4" in tuned_table([right])


@pytest.mark.parametrize(("ratio", "held"), [(3.45, True), (3.6, False), (3.12, True), (2.9, False)])
def test_a_gain_that_plain_loops_do_not_have_is_off(ratio, held):
    assert (not tried(WORKERS, ("num_workers=4",), ratio=ratio).miss) == held
