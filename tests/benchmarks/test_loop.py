"""The time of a plain loop beside that of its step, by a clock that only the step and the loader move."""

import math
import statistics

import pytest

from benchmarks import loop
from benchmarks.checks import checks_table
from benchmarks.datasets import Step
from benchmarks.efficiencies import Judged, check_judged, judged_table
from benchmarks.loop import LoopTime, TimedLoop, ratio_with_error
from benchmarks.work import Work, wait
from bottleneck.results.records import Interval
from tests.support.clock import FakeClock


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
