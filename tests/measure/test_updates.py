"""The number of batches per update of the weights, as optimizers show it."""

import torch
from torch import nn

from bottleneck.measure.updates import Updates, holds_optimizer
from tests.support.clock import FakeClock


def optimizer():
    weight = torch.zeros(1, requires_grad=True)
    weight.grad = torch.ones(1)
    return torch.optim.SGD([weight], lr=0.0)


def seen(steps, *, are_expected=True):
    """Return the updates seen in some steps, each a list of optimizers that step in it."""
    updates = Updates(FakeClock(), are_expected=are_expected)
    step = updates.watch(lambda stepped: [one.step() for one in stepped])
    with updates:
        for stepped in steps:
            step(stepped)
    return updates


def test_an_update_is_the_batches_between_two_steps_of_an_optimizer():
    one, other = optimizer(), optimizer()
    assert seen([[], [], [one], [], [], [one]]).batches_each == 3
    assert seen([[one], [one], [one]]).batches_each == 1
    assert seen([[one, other], [], [one, other]]).batches_each == 2
    assert seen([[one], [], []]).batches_each == 1


def test_more_steps_are_made_until_a_second_update_was_seen():
    one, clock, taken = optimizer(), FakeClock(), []
    updates = Updates(clock, are_expected=True)

    def gather(batch):
        taken.append(batch)
        if len(taken) % 12 == 0:
            one.step()

    step = updates.watch(gather)
    with updates:
        updates.catch_up(lambda: step(None))
    assert (len(taken), updates.batches_each) == (24, 12)


def test_an_optimizer_that_makes_no_step_is_waited_for_a_moment_only():
    clock, done = FakeClock(), []
    updates = Updates(clock, are_expected=True)
    with updates:
        updates.catch_up(lambda: (done.append(None), clock.advance(0.1)))
    assert 5 < len(done) < 15
    none_expected = Updates(clock, are_expected=False)
    with none_expected:
        none_expected.catch_up(done.clear)
    assert done


def test_the_optimizer_of_a_train_step_is_found():
    model = nn.Linear(1, 1)
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    assert holds_optimizer(None, lambda batch: one.step())
    assert not holds_optimizer(None, lambda batch: model(batch).sum())
