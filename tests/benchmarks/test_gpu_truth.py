"""The truth by which figures of a GPU are judged, in invented time: plain loops, calibrations, facts of a diagnosis."""

import json
from types import SimpleNamespace

import pytest
import torch

from benchmarks.gpu_facts import Told, describe, describe_tuning
from benchmarks.gpu_host import Host, agree
from benchmarks.gpu_job import Settings
from benchmarks.gpu_parts import with_advised_workers
from benchmarks.gpu_truth import Clocked, Marks, PlainLoop, time_step_alone
from bottleneck.reports.render import render
from tests.support.clock import FakeClock
from tests.support.results_factory import make_result
from tests.support.tuning_factory import make_tuning

BATCH, TURN_S, STEP_S, COPY_S = 256, 1.2, 0.138, 0.003


class Device:
    """A device that works while the host goes on, two steps behind it at most."""

    def __init__(self, clock, steps_ahead):
        self.clock, self.steps_ahead, self.free_s, self.ends_s = clock, steps_ahead, 0.0, []

    def work(self, seconds):
        self.free_s = max(self.free_s, self.clock()) + seconds

    def step(self, batch):
        self.work(STEP_S)
        self.ends_s.append(self.free_s)
        behind_s = self.ends_s[-1 - self.steps_ahead] if len(self.ends_s) > self.steps_ahead else 0.0
        self.clock.advance(max(0.0, behind_s - self.clock()))

    def mark(self):
        self.work(0.0)
        return self.free_s

    def seconds(self, first, second):
        return second - first

    def wait(self):
        self.clock.advance(max(0.0, self.free_s - self.clock()))


def in_bursts(clock, workers, turn_s):
    """Yield batches as workers in phase deliver them: one of each at once, and then none for a turn."""
    for number in range(10**6):
        clock.advance(max(0.0, (number // workers + 1) * turn_s - clock()))
        yield torch.zeros(BATCH, 1)


def loop_of(device, clock, workers, **options):
    def move(batch):
        device.work(COPY_S)
        return batch

    return PlainLoop(move, device.step, workers, device, len, clock, **options)


@pytest.fixture
def clock():
    return FakeClock()


# --- plain loops --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [4.0, 5.1, 6.0, 7.3, 8.9])
@pytest.mark.parametrize(("workers", "turn_s"), [(3, 1.2), (8, 1.9), (2, 0.35)])
def test_a_loop_of_whole_turns_is_right_whenever_its_seconds_end(clock, workers, turn_s, seconds):
    device = Device(clock, steps_ahead=2)
    found = loop_of(device, clock, workers).run(in_bursts(clock, workers, turn_s), seconds)
    assert found.samples_per_s == pytest.approx(BATCH * workers / turn_s, rel=0.01)
    assert found.efficiency == pytest.approx(STEP_S * workers / turn_s, rel=0.01)
    assert found.copy_ms == pytest.approx(1e3 * COPY_S)
    assert found.step_ms == pytest.approx(1e3 * STEP_S)
    assert clock() <= max(seconds, 2.5 + turn_s, 2 * turn_s) + 2 * turn_s


@pytest.mark.parametrize("steps_ahead", [0, 2])
def test_a_device_that_never_waits_is_idle_for_nothing_however_far_the_host_is_ahead(clock, steps_ahead):
    found = loop_of(Device(clock, steps_ahead), clock, 16).run(in_bursts(clock, 16, 0.1), 6.0)
    assert found.idle_ms == pytest.approx(0, abs=1e-6)
    assert found.efficiency == pytest.approx(STEP_S / (STEP_S + COPY_S))
    assert found.samples_per_s == pytest.approx(BATCH / (STEP_S + COPY_S))


def test_a_loop_is_begun_after_two_turns_and_two_and_a_half_seconds(clock):
    def turns_before(turn_s):
        clock.now_s = 0.0
        device = Device(clock, 2)
        found = loop_of(device, clock, 3).run(in_bursts(clock, 3, turn_s), 0.0)
        return len(device.ends_s) / 3 - found.turns

    assert turns_before(2.0) == 2
    assert turns_before(0.5) == 5


def test_a_step_alone_is_timed_on_the_batches_of_the_loop(clock):
    device = Device(clock, 2)
    loop = loop_of(device, clock, 3)
    loop.run(in_bursts(clock, 3, TURN_S), 4.0)
    assert len(loop.kept) == 4
    assert time_step_alone(device.step, loop.kept, 2.0, device, clock) == pytest.approx(1e3 * STEP_S)


def test_on_the_cpu_the_clock_of_the_host_marks(clock):
    marks = Marks(torch.device("cpu"), clock)
    loop = PlainLoop(lambda batch: batch, clock.step(0.1), 1, marks, len, clock)
    found = loop.run(in_bursts(clock, 1, 0.4), 4.0)
    assert found.efficiency == pytest.approx(0.25)
    assert found.idle_ms == pytest.approx(300)


def test_what_samples_take_in_workers_is_counted_over_the_timed_turns(clock):
    class Samples:
        took_s = 0.5

        def __len__(self):
            return 3

        def __getitem__(self, index):
            clock.advance(self.took_s)
            return index

    samples = Samples()
    data = Clocked(samples, clock)

    def batches():
        for number in range(10**6):
            samples.took_s = 0.5 if number < 2 else 0.004  # slow while it warms up
            yield [data[index] for index in range(4)]

    loop = PlainLoop(lambda batch: batch, clock.step(0.1), 1, Marks(torch.device("cpu"), clock), len, clock, data)
    assert loop.run(batches(), 4.0).worker_ms == pytest.approx(4)
    assert len(data) == 3


# --- the host -----------------------------------------------------------------------------------------------


def test_a_photograph_takes_what_the_clock_says_and_steal_is_counted(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu 100 0 100 700 0 0 0 100 0 0\n")
    host = Host(FakeClock(per_reading_s=0.002), stat)
    with host.calibrated() as facts:
        stat.write_text("cpu 150 0 100 730 0 0 0 120 7 7\n")
    assert facts == {"host_ms": pytest.approx(2.0), "stolen": pytest.approx(0.2)}


@pytest.mark.parametrize(
    ("other", "agrees"),
    [
        ({"host_ms": 4.19, "stolen": 0.0}, True),
        ({"host_ms": 4.21, "stolen": 0.0}, False),
        ({"host_ms": 3.79, "stolen": 0.0}, False),
        ({"host_ms": 4.0, "stolen": 0.06}, False),
        ({}, False),
    ],
)
def test_a_host_agrees_with_itself_within_five_percent(other, agrees):
    assert agree({"host_ms": 4.0, "stolen": 0.0}, other) is agrees


# --- what lines say -----------------------------------------------------------------------------------------


def test_it_is_told_when_the_state_and_the_name_are_and_what_each_phase_takes(clock):
    told = Told(clock)
    for after_s, phase, state, name in [
        (2, "recording", None, None),
        (3, "measuring", "input_bound", None),
        (4, "measuring", "input_bound", "load"),
        (1, "tracing", None, None),
    ]:
        clock.advance(after_s)
        told.note(SimpleNamespace(phase=phase, state=state, bottleneck=name))
    clock.advance(0.5)
    assert told.facts() == {
        "took_s": 10.5,
        "state_s": 5,
        "name_s": 9,
        "phases": {"start": 2, "recording": 3, "measuring": 5, "tracing": 0.5},
    }


def test_a_line_has_the_rounds_of_each_arm_and_survives_json():
    facts = json.loads(json.dumps(describe(make_result())))
    assert facts["rounds"]["raw"] == facts["rounds"]["device"] == 6
    assert facts["state"] == "input_bound"
    assert facts["efficiency"][1] < facts["efficiency"][0] < facts["efficiency"][2]
    assert facts["samples_per_s"]["raw"] == pytest.approx(16 / 0.02469)
    assert {"id", "gain", "proposed"} == set(facts["advice"][0])


def test_a_line_has_the_trials_of_a_tuning():
    tuning = make_tuning()
    facts = describe_tuning(json.loads(render(tuning, "json")))
    assert [trial["setting"] for trial in facts["trials"]] == [trial.setting for trial in tuning.trials]
    assert [trial["pairs"] for trial in facts["trials"]] == [len(trial.pairs) for trial in tuning.trials]
    assert facts["gain"][0] == pytest.approx(tuning.gain.estimate)
    assert facts["rungs"][0]["samples_per_s"][0] == pytest.approx(tuning.ladder[0].rate.samples_per_s)
    assert facts["rungs"][0]["rounds"] == len(tuning.ladder[0].rate.blocks)


def test_the_changed_job_has_the_workers_that_were_advised_and_otherwise_twelve():
    advised = {"advice": [{"id": "more-workers", "gain": [2.6, 1, 2.6], "proposed": {"num_workers": 10}}]}
    assert with_advised_workers(Settings(workers=3), advised).workers == 10
    assert with_advised_workers(Settings(workers=3), {"advice": []}).workers == 12
