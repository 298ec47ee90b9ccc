"""Waits of a monitored loop: counts, the worst batches, epochs and validations."""

import gc
import random
import sys

import pytest

from bottleneck.monitor.making import Made
from bottleneck.monitor.recorder import MIN_SLOW_S, Recorder
from bottleneck.results.monitor import (
    MAX_WORST,
    Checkpoint,
    Epoch,
    Monitored,
    SlowBatch,
    Validation,
    Waits,
    as_line,
    bucket_of,
    percentile,
    seconds_of,
)
from tests.support.clock import FakeClock


class Photos:
    pass


class Loop:
    """A job in invented time."""

    def __init__(self):
        self.clock = FakeClock()
        self.recorder = Recorder(clock=self.clock, now=self.clock)
        self.events = []

    def give(self, at, wait_s=0.001, made=None):
        began_s = self.clock()
        self.clock.advance(wait_s)
        if self.recorder.gave(at, began_s, self.clock()):
            self.recorder.note_slow(at, began_s, self.clock(), lambda: made)

    def train(self, dataset, batches, wait_s=0.001, step_s=0.002, ends=True):
        at = self.recorder.begin(dataset, self.clock())
        for _ in range(batches):
            self.give(at, wait_s)
            self.clock.advance(step_s)
            self.recorder.stepped()
        if ends:
            self.recorder.ended(at)

    def evaluate(self, dataset, batches, wait_s=0.001, ends=True):
        at = self.recorder.begin(dataset, self.clock())
        for _ in range(batches):
            self.give(at, wait_s)
        if ends:
            self.recorder.ended(at)

    def told(self, kind=None):
        self.events += self.recorder.events()
        return [event for event in self.events if kind is None or isinstance(event, kind)]


@pytest.fixture
def loop():
    return Loop()


def made(began_s, ended_s, worker=1, **stages):
    line = ("/job/train.py", 31, "load", "time.sleep")
    return Made(77, worker, began_s, ended_s, stages, 4711, 2.0, line, [12, 4711, 13])


def test_waits_are_counted_in_a_histogram_that_knows_them_to_a_twentieth(loop):
    rng = random.Random(0)
    waits = [rng.lognormvariate(-6, 1.5) for _ in range(5_000)]
    at = loop.recorder.begin(Photos(), 0.0)
    for wait_s in waits:
        loop.give(at, wait_s)
    (event,) = loop.told(Waits)
    assert (event.batches, sum(event.counts.values())) == (5_000, 5_000)
    assert event.wait_s == pytest.approx(sum(waits))
    for share in (0.5, 0.9, 0.99):
        truth = sorted(waits)[int(share * len(waits)) - 1]
        assert percentile(event.counts, share) == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e-6, 3.7e-4, 0.02, 59.0, 3000.0])
def test_a_wait_is_within_its_bucket(seconds):
    assert seconds_of(bucket_of(seconds)) == pytest.approx(max(seconds, 1e-6), rel=0.05)


def test_what_is_written_each_time_adds_up_to_the_run(loop):
    dataset = Photos()
    for batches in (3, 5, 0, 2):
        loop.train(dataset, batches)
        loop.told()
    events = loop.told(Waits)
    assert [event.batches for event in events] == [3, 5, 2]
    run = Monitored.of(map(as_line, loop.told()))
    (waits,) = run.waits.values()
    assert (waits.batches, waits.steps) == (10, 10)
    assert run.share(run.training) == pytest.approx(10 * 0.001 / 0.030)


def test_the_hundred_worst_are_those_of_the_whole_run(loop):
    rng = random.Random(1)
    waits = [0.0, *(rng.expovariate(1 / 0.05) for _ in range(3_000))]
    at = loop.recorder.begin(Photos(), 0.0)
    for wait_s in waits:
        loop.give(at, wait_s)
        if rng.random() < 0.01:
            loop.told()
    run = Monitored.of(map(as_line, loop.told()))
    assert [one.seconds for one in run.worst] == pytest.approx(sorted(waits, reverse=True)[:MAX_WORST])
    assert waits[run.worst[0].step - 1] == max(waits)
    assert len(loop.told(SlowBatch)) < 600  # they become rarer, however long it runs


def test_short_waits_are_none_of_the_worst_and_the_first_of_an_epoch_is_its_start(loop):
    at = loop.recorder.begin(Photos(), 0.0)
    for wait_s in (3.0, 0.9 * MIN_SLOW_S, 0.5):
        loop.give(at, wait_s)
    assert [one.step for one in loop.told(SlowBatch)] == [3]


def test_a_slow_batch_says_who_made_it_of_what_and_where(loop):
    at = loop.recorder.begin(Photos(), 0.0)
    loop.give(at)
    loop.give(at, 2.0, made(0.0, 1.99, other=0.1, decode=1.8, collate=0.1))
    (slow,) = loop.told(SlowBatch)
    assert (slow.loader, slow.epoch, slow.step, slow.worker, slow.pid) == ("0 Photos", 1, 2, 1, 77)
    assert (slow.stage, slow.indices, slow.slowest, slow.slowest_s) == ("decode", [12, 4711, 13], 4711, 2.0)
    assert (slow.file, slow.line, slow.function, slow.calls) == ("/job/train.py", 31, "load", "time.sleep")


@pytest.mark.parametrize(("began_s", "ended_s", "stage"), [(-1.0, 0.1, "handoff"), (0.3, 0.39, "queue")])
def test_a_batch_that_lay_ready_or_was_not_begun_waited_for_no_stage_of_its_own(loop, began_s, ended_s, stage):
    at = loop.recorder.begin(Photos(), 0.0)
    loop.give(at, 0.0)
    loop.give(at, 0.4, made(began_s, ended_s, fetch=ended_s - began_s))
    (slow,) = loop.told(SlowBatch)
    assert slow.stage == stage


def test_epochs_and_validations_are_told_apart(loop):
    train, validation = Photos(), Photos()
    for _ in range(2):
        loop.train(train, 5)
        loop.evaluate(validation, 3)
    epochs, validations = loop.told(Epoch), loop.told(Validation)
    assert [(one.loader, one.epoch, one.step) for one in epochs] == [("0 Photos", 1, 1), ("0 Photos", 2, 6)]
    assert [(one.loader, one.batches) for one in validations] == [("1 Photos", 3)] * 2
    assert validations[0].wait_s == pytest.approx(0.003)


def test_a_validation_within_an_epoch_or_before_all_of_them_is_one_too(loop):
    # Guards: one that is broken off, and one that is followed by a step.
    train, validation = Photos(), Photos()
    loop.evaluate(validation, 2)
    at = loop.recorder.begin(train, loop.clock())
    for step in range(6):
        loop.give(at)
        if step in (2, 4):
            loop.evaluate(validation, 4, ends=step == 2)
        loop.recorder.stepped()
    loop.recorder.ended(at)
    assert [one.loader for one in loop.told(Epoch)] == ["1 Photos"]
    assert [one.batches for one in loop.told(Validation)] == [2, 4, 4]
    run = Monitored.of(map(as_line, loop.told()))
    assert [(one.loader, one.steps) for one in run.training] == [("1 Photos", 6)]


def test_validations_that_are_always_broken_off_are_no_training(loop):
    # Guards: a framework that limits the batches of its validation; each is followed by a step of the next epoch.
    train, validation = Photos(), Photos()
    for _ in range(3):
        loop.train(train, 5, ends=False)
        loop.evaluate(validation, 2, ends=False)
    assert [one.batches for one in loop.told(Validation)] == [2, 2]  # the last one may go on
    run = Monitored.of(map(as_line, loop.told()))
    assert [(one.loader, one.steps) for one in run.training] == [("0 Photos", 15)]


def test_gathered_gradients_are_training(loop):
    dataset = Photos()
    for _ in range(2):
        at = loop.recorder.begin(dataset, loop.clock())
        for batch in range(10):
            loop.give(at)
            if batch % 6 == 5:
                loop.recorder.stepped()
        loop.recorder.ended(at)
    assert len(loop.told(Epoch)) == 2
    assert not loop.told(Validation)


def test_without_any_optimizer_of_pytorchs_passes_are_epochs(loop):
    loop.evaluate(Photos(), 3)
    loop.recorder.summary()
    assert len(loop.told(Epoch)) == 1
    assert not loop.told(Validation)


def test_a_loader_for_each_epoch_is_one(loop):
    for _ in range(40):
        loop.train(Photos(), 2)
    assert {event.loader for event in loop.told(Waits)} == {"0 Photos"}


def test_a_dataset_that_is_kept_for_each_epoch_takes_no_more_room_in_the_end(loop):
    kept = [Photos() for _ in range(40)]
    for one in kept:
        loop.train(one, 2)
    assert len({event.loader for event in loop.told(Waits)}) <= 16


def test_a_checkpoint_has_its_file_and_line(loop):
    loop.train(Photos(), 3)
    loop.recorder.saved(1.5, "/job/model.pt", ("/job/train.py", 40))
    (saved,) = loop.told(Checkpoint)
    assert (saved.step, saved.seconds, saved.path, saved.file, saved.line) == (
        3, 1.5, "/job/model.pt", "/job/train.py", 40,
    )  # fmt: skip


@pytest.mark.parametrize(("wait_s", "is_due"), [(0.00002, False), (0.001, True)])
def test_a_diagnosis_is_due_where_a_minute_was_waited_in(loop, wait_s, is_due):
    loop.train(Photos(), 50_000, wait_s=wait_s, step_s=0.002)
    summary = loop.recorder.summary()
    assert (summary.due is not None) == is_due
    assert summary.batches == 50_000
    if is_due:
        assert "33 % of" in summary.due
        assert "at most" in summary.due


def test_a_million_batches_take_no_more_memory_than_ten_thousand(loop):
    rng, one, clock = random.Random(2), made(0.0, 0.0, fetch=0.1), loop.clock
    waits = [rng.expovariate(1 / 0.004) for _ in range(10_000)]
    at = loop.recorder.begin(Photos(), 0.0)
    lines = 0

    def run(batches):
        nonlocal lines
        for number in range(batches):
            began_s = clock.now_s
            clock.now_s += waits[number % 10_000]
            if loop.recorder.gave(at, began_s, clock.now_s):
                loop.recorder.note_slow(at, began_s, clock.now_s, lambda: one)
            loop.recorder.stepped()
            if number % 500 == 499:  # a second of steps of 2 ms
                lines += sum(1 for _ in loop.recorder.events())

    run(10_000)
    gc.collect()
    before = sys.getallocatedblocks()
    run(990_000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 1_000
    assert loop.recorder.summary().batches == 1_000_000
    assert lines < 2_000 + 2_000  # one of each second, and slow batches
