"""A moment of a loop's steps: the parts of a step, and the lines of each, in invented time."""

import sys
import threading

import pytest
import torch

from bottleneck.loader.observing.meter import Spent
from bottleneck.script import look
from bottleneck.script.feed import Feed
from bottleneck.script.look import Look
from tests.support.clock import FakeClock


class Sampler:
    """Samples when the loop says so."""

    def __init__(self, see):
        Sampler.see, Sampler.runs = see, False

    def start(self):
        Sampler.runs = True

    def stop(self):
        Sampler.runs = False


def sampled(seconds):
    Sampler.see(sys._getframe(1), Spent(seconds, 0.0))


class World:
    """A loop that normalises for a second, trains for two and logs for three."""

    def __init__(self, breaks_at=None):
        self.clock, self.breaks, self.breaks_at, self.waits = FakeClock(), 0, breaks_at, 0
        self.at_model, self.detects, self.before = [], False, torch.nn.Identity()
        self.model = torch.nn.Sequential(torch.nn.Linear(1, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.feed = Feed(self.diagnose)
        self.has_parts = True
        self.look = Look(
            self.feed.asked_from, self.model, lambda: self.breaks, lambda: self.has_parts, self.clock, Sampler
        )

    def wait(self):
        self.waits += 1

    def diagnose(self, step):
        self.look(lambda: step(torch.ones(1)), self.wait, lambda: self.at_model.append(torch.is_anomaly_enabled()))

    def run(self):
        while (batch := self.feed.next_batch()) is not None:
            self.clock.now_s += 0.1
            sampled(0.1)  # input
            self.before(batch)
            with torch.autograd.set_detect_anomaly(self.detects, check_nan=False):
                self.model(batch).backward()
            self.clock.now_s += 0.2
            self.optimizer.step()
            self.clock.now_s += 0.3
            sampled(0.3)  # after
            self.breaks += self.breaks_at == self.waits
        return self.look.evidence()


def test_the_parts_of_a_step_and_their_lines():
    world = World()
    found = world.run()
    assert found["input_s"] == pytest.approx(0.1)
    assert found["after_device_s"] == pytest.approx(0.3)
    assert found["watched_s"] == pytest.approx(0.6)
    assert [(line.stage, line.code, line.function) for line in found["lines"]] == [
        ("input", "sampled(0.1)  # input", "run"),
        ("after", "sampled(0.3)  # after", "run"),
    ]
    assert world.waits == 2  # after the optimizer's step, in a second of steps
    assert not Sampler.runs


def test_a_sample_belongs_to_the_part_in_which_it_was_taken(monkeypatch):
    # Guards: `gc.collect()` at the end of a step, which keeps the GIL until then, counted for the step after it.
    found, goes_on, looked_up = threading.Event(), threading.Event(), look.line_within
    late = []

    def look_up(*where):
        line = looked_up(*where)
        found.set()
        assert goes_on.wait(10)
        return line

    def sample(seconds):
        late.append(threading.Thread(target=Sampler.see, args=(sys._getframe(1), Spent(seconds, 0.0))))
        late[-1].start()
        assert found.wait(10)
        found.clear()

    def finish():
        goes_on.set()
        for thread in late:
            thread.join()
        goes_on.clear()

    monkeypatch.setattr(look, "line_within", look_up)
    monkeypatch.setattr(Sampler, "stop", lambda _: finish())
    world = World()
    while (batch := world.feed.next_batch()) is not None:
        world.clock.now_s += 0.1
        finish()
        world.model(batch).backward()
        world.optimizer.step()
        world.clock.now_s += 0.3
        sample(0.3)  # after
    assert [(line.stage, line.code) for line in world.look.evidence()["lines"]] == [("after", "sample(0.3)  # after")]


@pytest.mark.parametrize("detects", [False, True])
def test_switches_are_read_once_where_the_model_is_called(detects):
    world = World()
    world.detects = detects
    world.run()
    assert world.at_model == [detects]


def test_steps_in_which_the_loop_evaluates_do_not_count():
    world = World(breaks_at=1)
    world.run()
    assert world.look.evidence()["watched_s"] == pytest.approx(0.6)
    assert world.waits == 3


def test_time_in_hooks_that_are_no_part_of_the_model():
    world = World()

    def log(*_):
        world.clock.now_s += 0.2
        sampled(0.2)

    world.model[0].register_forward_hook(log)
    torch.nn.utils.parametrizations.weight_norm(world.model[0])
    world.look = Look(world.feed.asked_from, world.model, lambda: 0, lambda: True, world.clock, Sampler)
    found = world.run()
    assert (found["hooks_s"], found["hooked"]) == (pytest.approx(0.2), 1)


def test_a_compiled_model_is_not_hooked(monkeypatch):
    monkeypatch.setattr(look, "has_compiled", lambda: True)
    assert World().run()["input_s"] is None


def test_a_model_that_is_not_trained_ends_the_input_work():
    world = World()
    world.before = torch.nn.Linear(1, 1)
    world.before.register_forward_hook(lambda *_: world.clock.advance(0.2))
    assert world.run()["input_s"] == pytest.approx(0.1)


def test_nothing_is_left_behind_where_the_loop_ends():
    world = World()

    def fail():
        raise KeyError

    with pytest.raises(KeyError):
        world.look(fail, world.wait)
    assert not Sampler.runs
    assert world.look.evidence() == {}
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_of_steps_in_another_order_no_part_is_known():
    world = World()
    world.has_parts = False
    found = world.run()
    assert (found["input_s"], found["after_device_s"], found["watched_s"]) == (None, None, pytest.approx(0.6))
    assert {line.stage for line in found["lines"]} == {"step"}


def test_a_sample_belongs_to_the_step_in_which_it_was_taken(monkeypatch):
    """Guards: `gc.collect()` at the end of a step was booked under what comes before the model in the next one."""
    world, found, goes_on = World(), threading.Event(), threading.Event()
    within, late = look.line_within, []

    def slow(innermost, around):
        found.set()
        goes_on.wait(10)
        return within(innermost, around)

    monkeypatch.setattr(look, "line_within", slow)
    while (batch := world.feed.next_batch()) is not None:
        goes_on.set()
        for thread in late:  # it comes to an end within the next step
            thread.join()
        world.clock.now_s += 0.3
        world.model(batch).backward()
        world.optimizer.step()
        world.clock.now_s += 0.3
        if not late:
            late.append(threading.Thread(target=Sampler.see, args=(sys._getframe(), Spent(0.3, 0.0))))
            late[0].start()
            assert found.wait(10)
    assert [line.stage for line in world.look.evidence()["lines"]] == ["after"]
