"""The pace of a loop with its own batches: known to a few per cent, soon, and given up where it would take too long."""

import math
import random
from types import SimpleNamespace

import pytest
from torch.utils.data import DataLoader

from bottleneck.script.iterators import Source
from bottleneck.script.pace import OwnPace
from tests.script.test_watch import Loop, loader_of
from tests.support.clock import FakeClock
from tests.tuning.jobs import Stream


class Script:
    """A loop over workers that deliver in order, in invented time; its first steps are made already.

    Args:
        worker_s: What a worker takes for a batch.
        cv: Of that time.
    """

    def __init__(self, workers, worker_s, step_s, cv=0.1, batches=10**6, skipped=3, seed=0):
        self.clock = FakeClock()
        self.pace = OwnPace(self.clock)
        self.step_s, self.worker_s, self.skipped = step_s, worker_s, skipped
        spread = math.sqrt(math.log1p(cv * cv))
        draws = random.Random(seed)
        self.draw = lambda: worker_s * draws.lognormvariate(-spread * spread / 2, spread)
        self.source = SimpleNamespace(loader=Sized(workers, batches))
        self.free_s, self.due_s, self.breaks = [0.0] * workers, [], 0
        for _ in range(2 * workers):
            self.ask_worker()

    def ask_worker(self):
        worker = min(range(len(self.free_s)), key=self.free_s.__getitem__)
        self.free_s[worker] = max(self.free_s[worker], self.clock()) + self.draw()
        self.due_s.append(self.free_s[worker])

    def take(self):
        if not self.free_s:
            self.clock.advance(self.draw())
        else:
            self.clock.advance(max(0.0, self.due_s.pop(0) - self.clock()))
            self.ask_worker()
        self.clock.advance(self.step_s)

    def ask(self):
        return self.pace.ask(self.source, self.breaks, sum(due_s <= self.clock() for due_s in self.due_s))

    def run(self, most=100_000):
        """Train until no further real step is needed; return how many were made, and how long that took."""
        for _ in range(self.skipped):
            self.take()
        began_s = self.clock()
        for steps in range(most):
            if self.ask():
                return steps, self.clock() - began_s
            self.take()
        raise AssertionError("it never ends")

    @property
    def truth_s(self):
        return max(self.step_s, self.worker_s / len(self.free_s)) if self.free_s else self.step_s + self.worker_s


class Sized:
    def __init__(self, num_workers, batches):
        self.num_workers, self.batches = num_workers, batches

    def __len__(self):
        return self.batches


@pytest.mark.parametrize(
    ("workers", "worker_s", "step_s"),
    [
        (0, 0.050, 0.010),
        (1, 0.040, 0.010),
        (2, 0.334, 0.034),  # the script of the H100 that a tuning read 47 % too fast
        (3, 1.25, 0.138),
        (16, 1.25, 0.138),
        (8, 0.010, 0.020),
        (4, 0.002, 0.0001),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_the_pace_is_known_to_a_few_per_cent_within_seconds(workers, worker_s, step_s, seed):
    script = Script(workers, worker_s, step_s, seed=seed)
    _, seconds = script.run()
    assert script.pace.seconds_per_batch == pytest.approx(script.truth_s, rel=0.08)
    assert seconds <= 8.0 + worker_s


def test_a_loop_without_time_for_it_is_not_held_up():
    steps, _ = Script(2, 0.020, 0.001, batches=40).run()
    assert steps == 0
    steps, _ = Script(2, 0.020, 0.001, batches=80).run()
    assert steps == 20


def test_what_takes_seconds_for_a_batch_is_given_up():
    script = Script(2, 5.0, 0.1)
    _, seconds = script.run()
    assert script.pace.seconds_per_batch is None
    assert seconds < 15.0


def test_a_queue_that_runs_empty_does_not_hide_how_slow_the_loader_is():
    # The first step compiles: the queue is full when the timing begins, and the loader a third slower than the step.
    script = Script(8, 0.8, 0.075, cv=0.05)
    script.clock.advance(20.0)
    script.run()
    assert script.pace.seconds_per_batch == pytest.approx(0.1, rel=0.1)


def test_what_a_loop_does_between_two_passes_is_not_timed():
    script = Script(0, 0.050, 0.010)
    for _ in range(4):
        script.ask()
        script.take()
    script.clock.advance(5.0)
    script.breaks += 1
    script.run()
    assert script.pace.seconds_per_batch == pytest.approx(0.060, rel=0.1)


def test_a_loop_of_short_passes_is_given_up():
    script, asked = Script(0, 0.050, 0.010), 0
    while not script.ask():
        script.take()
        asked += 1
        script.breaks = asked // 4
    assert asked < 20
    assert script.pace.seconds_per_batch is None


# --- in a loop that is watched -------------------------------------------------------------------------------


class InSteps:
    """A clock of which a step of the loop takes a tenth of a second."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 0.1
        return self.now_s


def watched(batches, gathered=1, **fields):
    """A loop whose pace is asked for, and whether each of its batches was ours."""
    loop = Loop()
    loop.watch.own_pace = OwnPace(InSteps())
    given = []
    with loop.watch:
        for number, batch in enumerate(batches, 1):
            given.append(batch == "fed")
            if number % gathered == 0:
                loop.step()
    return loop, given


def test_a_loop_is_fed_once_its_pace_is_known():
    loop, given = watched(loader_of(1, batches=200))
    assert given.index(True) == 3 + 24
    assert loop.watch.loop.own_s_per_batch == pytest.approx(0.1)


def test_a_loop_that_gathers_gradients_is_fed_from_the_first_batch_of_an_update_on():
    _, given = watched(loader_of(1, batches=400), gathered=8)
    assert given.index(True) % 8 == 0


def test_a_short_loop_is_fed_at_once():
    loop, given = watched(loader_of(1, batches=20))
    assert given.index(True) == 3
    assert loop.watch.loop.own_s_per_batch is None


def test_steps_that_are_timed_are_not_looked_at(monkeypatch):
    looked = []
    loop = Loop()
    loop.watch.own_pace = OwnPace(InSteps())
    monkeypatch.setattr(loop.watch, "learn", lambda source, batch: looked.append(source.steps))
    with loop.watch:
        loop.train(loader_of(1, batches=200))
    assert looked == [0, 2]


def test_ranks_do_not_wait_for_a_pace_of_their_own(monkeypatch):
    monkeypatch.setattr("bottleneck.script.watch.world_size", lambda: 2)
    _, given = watched(loader_of(1, batches=200))
    assert given.index(True) == 3


def test_a_stream_may_be_short_and_is_not_held_up():
    assert OwnPace(FakeClock()).ask(Source(DataLoader(Stream(), batch_size=2)), 0)
