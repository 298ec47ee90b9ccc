"""Time stolen by other virtual machines is seen, and blocks that lost much of it are repeated."""

import os
from collections import namedtuple

import psutil
import pytest

from bottleneck.loader import modes
from bottleneck.measure.ladder import Arm
from bottleneck.measure.ledger import Blocks
from bottleneck.measure.machine import counters
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.rounds.turns import RepeatPolicy, StealTime, StealTimeMeter, Turns, Visit, _read_stolen_s
from bottleneck.results.records import Block
from tests.support.clock import FakeClock
from tests.support.sessions import NAMED, PRECISE, blocks, invented_time, pipeline_of, run

RAW, DEVICE = Arm(modes.ALL, "loader"), Arm(None, "device")
MUCH, LITTLE, NONE = StealTime(0.4, 0.2), StealTime(0.01, 0.02), StealTime()


def stolen_of(*, seconds, elapsed_s, processes, cpus):
    readings, times = iter((100.0, 100.0 + seconds)), iter((50.0, 50.0 + elapsed_s))
    watch = StealTimeMeter(lambda: next(readings), lambda: next(times), cpus)
    watch.begin()
    return watch.end(processes)


def test_the_share_is_of_the_cores_that_the_job_could_use():
    assert stolen_of(seconds=0.1, elapsed_s=0.5, processes=3, cpus=64) == StealTime(
        pytest.approx(0.1), pytest.approx(0.1 / 1.5)
    )
    assert stolen_of(seconds=0.1, elapsed_s=0.5, processes=9, cpus=2).share == pytest.approx(0.1)
    assert stolen_of(seconds=0.0, elapsed_s=0.5, processes=3, cpus=64) == StealTime()
    assert stolen_of(seconds=0.1, elapsed_s=0.0, processes=3, cpus=64) == StealTime()


def test_only_cpus_that_we_may_use_are_looked_at(monkeypatch):
    Times = namedtuple("Times", "user steal")
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [Times(1, 2.0), Times(1, 8.0), Times(1, 1.0)])
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(counters, "allowed_cpus", lambda: [0, 2])
    assert _read_stolen_s() == 3.0


@pytest.mark.parametrize("error", [FileNotFoundError("/proc/stat"), psutil.AccessDenied()])
def test_nothing_is_stolen_where_that_cannot_be_seen(monkeypatch, error):
    def refuse(percpu=False):
        raise error

    monkeypatch.setattr(psutil, "cpu_times", refuse)
    assert _read_stolen_s() == 0.0
    Times = namedtuple("Times", "user system")  # as on macOS
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu=False: [Times(1, 2)] * 64 if percpu else Times(1, 2))
    assert _read_stolen_s() == 0.0


# --- repeated blocks ---------------------------------------------------------------------------------------


def repeats_after(passed_s, kept=()):
    times = iter([10.0] + [10.0 + passed_s] * 100)
    repeats = RepeatPolicy(lambda: next(times))
    for stolen in kept:
        repeats.keep(RAW, stolen)
    return repeats


def test_a_block_is_measured_again_when_much_was_stolen():
    repeats = repeats_after(1.0)
    assert repeats.wanted(RAW, MUCH)
    assert not repeats.wanted(RAW, LITTLE)
    assert not repeats.wanted(RAW, NONE)
    assert not repeats.wanted(RAW, StealTime(0.02, 0.2))  # two ticks of the kernel's clock


def test_what_is_usual_on_a_machine_is_not_measured_again():
    assert not repeats_after(1.0, [StealTime(0.3, 0.15)] * 5).wanted(RAW, MUCH)
    assert repeats_after(1.0, [LITTLE] * 5).wanted(RAW, MUCH)


def test_what_is_usual_for_one_experiment_is_no_measure_of_another():
    # Guards: one that computes always loses more to steal than one that waits for the device; by a common level only
    # its worst blocks were exchanged, and the efficiency came out too high.
    repeats = repeats_after(1.0, [StealTime(0.3, 0.15)] * 3)
    for _ in range(7):
        repeats.keep(DEVICE, NONE)
    assert not repeats.wanted(RAW, MUCH)
    assert repeats.wanted(DEVICE, MUCH)
    assert repeats.stolen_share == pytest.approx(0.045)


def test_only_a_share_of_the_time_goes_into_measuring_again():
    repeats = repeats_after(20.0)
    assert repeats.affordable(1.0, left_s=40.0)
    assert not repeats.affordable(1.0, left_s=0.9)
    assert not repeats.affordable(5.0, left_s=40.0)  # a long block, in which episodes average out
    for _ in range(5):
        repeats.repeat(1.0)
    assert not repeats.affordable(1.0, left_s=40.0)
    assert repeats.repeated == 5


@pytest.mark.parametrize("has_another", [True, False])
def test_only_a_block_that_was_made_counts_as_measured_again(has_another):
    clock, block = FakeClock(), Block(0, 4, 0.1, 4)

    def visit(arm, batches):
        clock.advance(10.0)
        return Visit(block, 0.0, MUCH) if batches is None or has_another else None

    turns = Turns(clock, visit, lambda: 1000.0)
    turns.round([RAW], Blocks())
    assert turns.repeats.repeated == int(has_another)


class Machine:
    """Stands for what `StealTimeMeter` sees: in some visits the job takes twice the time, and the machine is why."""

    def __init__(self, monkeypatch, is_disturbed):
        self.visits, self.disturbed, self.is_disturbed = 0, False, is_disturbed
        self.clock = invented_time()
        monkeypatch.setattr(StealTimeMeter, "begin", lambda _: self.begin())
        monkeypatch.setattr(StealTimeMeter, "end", lambda _, processes: MUCH if self.disturbed else LITTLE)

    def begin(self):
        self.visits += 1
        self.disturbed = self.is_disturbed(self.visits)

    def measure(self, judgement, *, fails=False):
        def step(batch):
            self.clock.advance(0.05 * (1 + self.disturbed))

        pipeline = pipeline_of(train_step=step, num_workers=0)
        outcome = run(pipeline, MeasureOptions(budget_s=60.0), lambda _: judgement, clock=self.clock)
        assert (outcome.failure is not None) == fails
        return outcome


def test_of_two_blocks_the_one_that_was_disturbed_less_is_kept(monkeypatch):
    outcome = Machine(monkeypatch, lambda visit: 54 <= visit < 57).measure(PRECISE)
    assert outcome.measurement.evidence.blocks_repeated == 3
    assert outcome.measurement.evidence.stolen_share == pytest.approx(LITTLE.share)
    for found in blocks(outcome).values():
        rounds = [block.round for block in found if block.round > 0]
        assert len(rounds) == len(set(rounds))
        assert all(block.seconds / block.batches < 0.09 for block in found)


def test_a_disturbed_block_is_kept_when_the_diagnosis_ends_before_it_was_measured_again(monkeypatch):
    def is_disturbed(visit):
        if visit == 48:
            raise KeyboardInterrupt
        return visit >= 44

    machine = Machine(monkeypatch, is_disturbed)
    outcome = machine.measure(PRECISE, fails=True)
    assert sum(b.seconds / b.batches > 0.09 for found in blocks(outcome).values() for b in found) >= 1


def test_on_a_machine_that_is_always_disturbed_nothing_is_measured_again_for_long(monkeypatch):
    outcome = Machine(monkeypatch, lambda visit: True).measure(NAMED)
    assert outcome.measurement.evidence.blocks_repeated <= 12  # a round, in which all of them are out of the ordinary
    assert outcome.measurement.evidence.stolen_share == pytest.approx(MUCH.share)
    assert len(blocks(outcome)["raw"]) >= 6
