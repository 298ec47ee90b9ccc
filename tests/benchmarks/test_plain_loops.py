"""Plain loops: what they take, and what stages, gains and diagnoses are judged by."""

import itertools
import math
import statistics
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from benchmarks import gains, loop, observer, paired
from benchmarks.checks import checks_table
from benchmarks.datasets import Step
from benchmarks.efficiencies import Judged, check_judged, judged_table
from benchmarks.gains import JOBS, Gain, check_gains, gains_table
from benchmarks.loop import LoopTime, TimedLoop, ratio_with_error
from benchmarks.observer import Timed, measure_observer_effect
from benchmarks.paired import Realised, enough_of, realise
from benchmarks.plain import plain_loader
from benchmarks.planted import find_planted
from benchmarks.taken_out import MadeBatch, without
from benchmarks.work import Work, wait
from bottleneck.measure.rounds.turns import StealTime
from bottleneck.results.records import Interval
from tests.support.clock import FakeClock

# --- a loop and its step ------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    clock = FakeClock()
    # A step takes a tenth longer than it was planned to.
    monkeypatch.setattr(Work, "complete", lambda self, mark, times=1.0: clock.advance(1.1 * self.seconds * times))
    return clock


class StepBySize(Step):
    def times(self, batch):
        return float(batch)


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


def test_steps_of_different_lengths_are_compared_over_the_very_same_batches(clock, monkeypatch):
    # Large batches are in the beginning only, as where they are grouped by length.
    sizes = [5] * 200 + [1] * 10**5
    found = timed(clock, monkeypatch, sizes, [0.009], step=StepBySize(wait(0.01))).run(60, most_times=1)
    large = 200 - loop.FEWEST_WARM_UP
    small = found.batches - large
    steps = 0.011 * (5 * large + small)
    assert found.efficiency == pytest.approx(steps / (steps + 0.009 * found.batches), rel=1e-3)


def test_a_process_that_starts_while_the_step_is_alone_does_not_count(clock, monkeypatch):
    class Delayed(Step):
        alone = 0

        def __call__(self, batch):
            super().__call__(batch)
            clock.advance(0.001 if 50 < self.alone < 250 else 0.0)
            self.alone += self.alone > 0

    job = timed(clock, monkeypatch, [1], [0.009], step=Delayed(wait(0.01)))
    step_alone = job._step_alone

    def begin():
        job._step.alone = 1
        return step_alone()

    monkeypatch.setattr(job, "_step_alone", begin)
    assert job.run(60).efficiency == pytest.approx(0.011 / 0.020)
    assert job._step.alone > 350


def test_it_ends_with_a_whole_turn_of_the_workers(clock, monkeypatch):
    found = timed(clock, monkeypatch, [1], [0.08] + [0.0] * 7, workers=8).run(20)
    assert found.batches % 8 == 0
    assert found.efficiency == pytest.approx(0.088 / 0.168)
    assert found.error < 1e-6


def test_the_standard_error_is_that_of_independent_parts():
    seconds = [1.0, 1.2, 0.9, 1.1, 0.8]
    ratio, error = ratio_with_error([(second, 0.5) for second in seconds])
    assert ratio == pytest.approx(0.5)
    assert error == pytest.approx(0.5 * statistics.stdev(seconds) / math.sqrt(5) / statistics.fmean(seconds))
    assert ratio_with_error([(1.0, 0.5)])[1] == math.inf


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


def test_a_batch_in_shared_memory_is_written_there_anew_each_time():
    # Guards: the same tensor travels twice as a mere file descriptor, so that the hand-off would be taken out as well.
    batch = torch.zeros(3).share_memory_(), torch.ones(2)
    shared, plain = MadeBatch(batch)()
    assert shared.is_shared()
    assert shared.data_ptr() != batch[0].data_ptr()
    assert plain is batch[1]


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


def test_what_was_made_while_nobody_took_it_is_in_no_block(monkeypatch):
    """The queues hold 16 batches that are there at once; later ones take 25 ms, the step 20 ms."""
    now = [0.0]
    made = iter([0.0] * 16 + [0.025] * 10**4)
    ready = [0.0]

    def batches():
        for takes_s in made:
            ready[0] += takes_s
            now[0] = max(now[0], ready[0])
            yield [torch.zeros(1)]

    monkeypatch.setattr(observer, "plain_loader", lambda fields: batches())
    monkeypatch.setattr(
        observer, "StealTimeMeter", lambda: SimpleNamespace(begin=lambda: None, end=lambda processes: None)
    )
    monkeypatch.setattr(observer, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def step(batch):
        now[0] += 0.020

    loop = observer.PlainLoop({"train_step": step, "device": "cpu", "num_workers": 8})
    assert loop.run_block(64).seconds_per_batch == pytest.approx(0.025, rel=0.01)


def gain(truth, reported, **changes):
    return Gain("last_straw", "augment", Realised((truth, truth)), reported, **changes)


@pytest.mark.parametrize(("truth", "right"), [(1.20, True), (1.171, True), (1.169, False), (1.331, False)])
def test_the_truth_is_in_the_interval_widened_by_three_hundredths(truth, right):
    assert gain(truth, Interval(1.25, 1.20, 1.30)).right is right


def test_a_gain_that_is_missing_or_wrong_is_listed():
    good, missing = gain(1.25, Interval(1.25, 1.2, 1.3)), gain(1.25, None)
    wrong, failed = gain(1.0, Interval(1.25, 1.2, 1.3)), gain(1.25, None, failure="OSError: no")
    check = check_gains([good, missing, wrong, failed])
    assert not check.held
    assert check.measured == "1 of 4"
    assert check.off == (
        "last_straw/augment: not reported", "last_straw/augment: out by 0.20", "last_straw/augment: OSError: no",
    )  # fmt: skip
    assert check_gains([good]).held
    assert "**out by 0.20**" in gains_table([wrong])


def test_a_job_is_diagnosed_once_between_the_plain_loops_of_its_stages(monkeypatch):
    # Guards: plain loops after the diagnosis only, on a machine that had changed by then.
    calls, earlier_ones = [], []

    def realise(before, after, *, pairs, half_width=math.inf, earlier=()):
        calls.append("loops")
        earlier_ones.append(earlier)
        return Realised((*earlier, *[1.5] * pairs))

    monkeypatch.setattr(gains, "run_diagnosis", lambda fields, quick: (calls.append("diagnosis"), (None, 1.0, "no"))[1])
    monkeypatch.setattr(gains, "realise", realise)
    found = gains.measure_gains([JOBS[-1]])
    assert [one.stage for one in found] == ["load", "augment"]
    assert calls == ["loops", "loops", "diagnosis", "loops", "loops"]
    assert [len(earlier) for earlier in earlier_ones] == [0, 0, 4, 4]
    assert [len(one.realised.ratios) for one in found] == [8, 8]


def test_a_busy_machine_gets_more_pairs_until_the_gain_is_known():
    steady, shaky = itertools.repeat(1.5), itertools.cycle((1.2, 1.8))
    assert len(enough_of(steady, 8, 0.03).ratios) == 8
    assert len(enough_of(shaky, 8, 0.03).ratios) == 24
    assert len(enough_of(itertools.chain([1.0, 2.0], steady), 8, 0.2).ratios) > 8
    assert len(enough_of(shaky, 8, math.inf).ratios) == 8


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
