"""In which order a step goes: by what runs."""

import pytest
import torch
from torch import nn

from bottleneck.results.evidence import LoopSeen
from bottleneck.script.job import BackwardPasses
from bottleneck.script.order import StepOrder
from bottleneck.script.seen import LoopTime, of_one_loader
from tests.script.test_loop_time import DEVICE, TimedSGD
from tests.support.clock import FakeClock
from tests.support.results_factory import make_result


class Loop:
    """Two networks with an optimizer each; `give` stands for the next batch."""

    def __init__(self):
        self.order = StepOrder()
        self.model, self.other = nn.Linear(2, 1), nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD([*self.model.parameters(), *self.other.parameters()], lr=0.1)
        self.batch = torch.ones(4, 2)

    def give(self):
        self.order.ends()
        self.order.begins()
        return self.batch

    def step(self):
        self.optimizer.step()
        self.order.steps()


def usual(loop):
    loss = loop.model(loop.give()).sum()
    loss.backward()
    loop.step()


def gathers_gradients(loop):
    for _ in range(3):
        loop.model(loop.give()).sum().backward()
    loop.step()


def two_optimizers(loop):
    batch = loop.give()
    loop.model(batch).sum().backward()
    loop.step()
    loop.other(batch).sum().backward()
    loop.step()


def closure(loop):
    batch = loop.give()
    loop.optimizer.step(lambda: loop.model(batch).sum().backward())
    loop.order.steps()


def takes_the_next_between_the_passes(loop):
    loss = loop.model(getattr(loop, "ahead", loop.batch)).sum()
    loop.ahead = loop.give()
    (loss * 8).backward()  # as a scaler of gradients does, after the batch has come
    loop.step()


def steps_first(loop):
    batch = loop.give()
    loop.step()
    loop.model(batch).sum().backward()


@pytest.mark.parametrize(
    ("step", "is_usual"),
    [
        (usual, True),
        (gathers_gradients, True),
        (two_optimizers, True),
        (closure, True),
        (takes_the_next_between_the_passes, False),
        (steps_first, False),
    ],
)
def test_the_order_is_known_by_what_runs(step, is_usual):
    loop = Loop()
    with BackwardPasses(loop.order.passes_back):
        for _ in range(3):
            step(loop)
        loop.give()
    assert loop.order.is_usual is is_usual


def test_a_few_steps_are_enough():
    loop = Loop()
    with BackwardPasses(loop.order.passes_back):
        for _ in range(20):
            usual(loop)
        takes_the_next_between_the_passes(loop)
    assert loop.order.is_usual


def test_of_a_step_in_another_order_there_is_only_its_time():
    """Guards: nanoGPT's backward pass was input work in the loop, and its forward pass logging."""
    clock, order = FakeClock(), StepOrder()
    optimizer = TimedSGD(clock)

    def loop(_):
        clock.now_s += 1.0
        optimizer.step()
        order.steps()
        order.passes_back(())
        clock.now_s += 2.0

    with LoopTime(clock, order=order) as times:
        times.watch(loop)(0)
        times.note_progress(DEVICE)
        times.watch(loop)(0)
    found = times.evidence()
    assert found == LoopSeen(batches=1, batch_s=5.0, other_loaders_s=0.0)
    verdict = make_result().verdict
    assert of_one_loader(verdict, LoopSeen(batch_s=1.0, other_loaders_s=0.01)) is verdict
    assert of_one_loader(verdict, LoopSeen(batch_s=1.0, other_loaders_s=0.5)).efficiency is None
