"""A loop's use of other loaders: evaluations by their span, and workers that start."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bottleneck.measure.options import Loop
from bottleneck.script.elsewhere import Elsewhere
from tests.script.test_watch import Loop as WatchedLoop
from tests.script.test_watch import evaluate, loader_of


class World:
    """A clock, the steps of an optimizer, and a loader of a validation."""

    def __init__(self):
        self.now, self.steps, self.feeding = 0.0, 0, []
        self.loop = Loop(breaks=1)
        self.loader = DataLoader(TensorDataset(torch.zeros(4)), batch_size=2, num_workers=2)
        self.elsewhere = Elsewhere(self.loop, lambda: self.steps, lambda: self.feeding, lambda: self.now)

    def wait(self, at, seconds, **more):
        self.now += seconds
        self.elsewhere.gave(at, seconds, **more)

    @property
    def seen(self):
        [found] = self.elsewhere.evidence()
        return found


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize("breaks_off", [False, True])
def test_an_evaluation_lasts_until_its_end_or_until_the_loop_trains_on(world, breaks_off):
    at = world.elsewhere.begin(world.loader, 0.0)
    for waited_s in (2.0, 0.5):
        world.wait(at, waited_s)
        world.now += 1.0  # the model
    if not breaks_off:
        world.wait(at, 0.25, ends=True)
    world.elsewhere.trains()
    world.now += 10.0
    world.elsewhere.trains()
    found, end_s = world.seen, 0.0 if breaks_off else 0.25
    assert (found.passes, found.evaluations, found.evaluating_s) == (1, 1, 4.5 + end_s)
    assert (found.starting_s, found.waiting_s) == (2.0 + end_s, 0.5)
    assert (found.first_s, found.later_batches, found.loaders) == (2.0, 1, 1)
    assert (found.dataset, found.num_workers, found.persistent_workers) == ("TensorDataset", 2, False)
    assert world.loop.breaks == 1


@pytest.mark.parametrize("kind", ["a step follows", "it feeds the loop"])
def test_what_is_trained_on_is_no_evaluation_and_no_break(world, kind):
    at = world.elsewhere.begin(world.loader, 3.0)
    world.wait(at, 1.0)
    world.steps += kind == "a step follows"
    world.feeding = [world.loader] if kind == "it feeds the loop" else []
    world.elsewhere.trains()
    assert (world.seen.evaluations, world.seen.evaluating_s, world.seen.starting_s) == (0, 0.0, 4.0)
    assert world.loop.breaks == 0


def test_a_pass_that_begins_in_two_ways_is_one(world):
    at = world.elsewhere.begin(world.loader, 0.0)
    assert world.elsewhere.begin(world.loader, 1.0, at) is at
    world.wait(at, 1.0)
    world.elsewhere.begin(world.loader, 0.0, at)
    assert (world.seen.passes, world.seen.starting_s) == (2, 2.0)


@pytest.mark.parametrize("made_again", [False, True])
def test_loaders_that_are_made_for_each_pass_are_counted(world, made_again):
    for _ in range(3):
        again = DataLoader(world.loader.dataset, batch_size=2, num_workers=2)
        world.elsewhere.begin(again if made_again else world.loader, 0.0)
        world.elsewhere.trains()
    assert (world.seen.evaluations, world.seen.loaders) == (3, 3 if made_again else 1)


def test_the_loop_of_a_script_is_followed_once_it_is_fed():
    loop, train, validation = WatchedLoop(), loader_of(1, batches=6), loader_of(2, batches=3)
    with loop.watch:
        evaluate(validation)  # before it is fed
        loop.train(train)
        evaluate(validation)
        loop.train(train)
    [seen] = loop.watch.elsewhere.evidence()
    assert (seen.passes, seen.evaluations) == (1, 1)
    assert 0 <= seen.starting_s <= seen.evaluating_s


def test_the_loader_that_starts_no_workers_for_each_batch_is_fed():
    loop, paired = WatchedLoop(), loader_of(2, batches=9, num_workers=1)
    with loop.watch:
        for _ in loader_of(1, batches=9):
            next(iter(paired))
            loop.step()
    [(source, _)] = loop.began
    assert source.loader is not paired
    [seen] = loop.watch.elsewhere.evidence()
    assert (seen.passes, seen.evaluations) == (5, 0)
    assert loop.watch.loop.breaks == 1 + 3  # those before it was fed
