"""What a loop does with a batch is split at the step of its optimizer."""

import pytest
import torch

from bottleneck.measure.options import ProgressUpdate
from bottleneck.results.evidence import LoopSeen
from bottleneck.script.loop_time import LoopTime

DEVICE = ProgressUpdate("measuring", experiment="device")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class TimedSGD(torch.optim.SGD):
    """Takes two seconds a step."""

    def __init__(self, clock):
        super().__init__([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        self.clock = clock

    def step(self, closure=None):
        found = closure() if closure else None
        self.clock.now += 2.0
        return found


@pytest.fixture
def clock():
    return Clock()


def split(clock, steps, updates=(DEVICE,)):
    """The evidence of batches that take three seconds, then so many optimizers, then one second."""
    optimizers = [TimedSGD(clock) for _ in range(max(steps))]
    times = LoopTime(clock, elsewhere=lambda: clock() / 2)

    def loop(batch):
        clock.now += 3.0
        for optimizer in optimizers[:batch]:
            optimizer.step()
        clock.now += 1.0

    with times:
        step = times.watch(loop)
        for update in updates:
            times.note_progress(update)
            for batch in steps:
                step(batch)
    optimizers[0].step()  # counted by nobody
    return times.evidence()


@pytest.mark.parametrize(
    ("steps", "until_s", "optimizer_s", "after_s"),
    [([1, 1], 3.0, 2.0, 1.0), ([2], 3.0, 4.0, 1.0), ([0, 1], 3.5, 1.0, 0.5)],
)
def test_a_batch_is_split_at_the_optimizers(clock, steps, until_s, optimizer_s, after_s):
    found = split(clock, steps)
    assert found == LoopSeen(
        batches=len(steps),
        until_optimizer_s=until_s,
        optimizer_s=optimizer_s,
        after_optimizer_s=after_s,
        other_loaders_s=(until_s + optimizer_s + after_s) / 2,
    )


@pytest.mark.parametrize("step", [lambda it, run: it.step(run), lambda it, run: it.step(closure=run)])
def test_a_closure_is_no_part_of_the_step(clock, step):
    """As in Lightning, where forward and backward pass run within it."""
    optimizer, given = TimedSGD(clock), []

    def forward():
        clock.now += 3.0
        return "loss"

    with LoopTime(clock) as times:
        times.note_progress(DEVICE)
        times.watch(lambda batch: given.append(step(optimizer, forward)))(0)
    found = times.evidence()
    assert (found.until_optimizer_s, found.optimizer_s, found.after_optimizer_s, given) == (3.0, 2.0, 0.0, ["loss"])


def test_only_batches_that_are_on_the_device_already_count(clock):
    others = (ProgressUpdate("warming up"), ProgressUpdate("measuring", experiment="raw"), DEVICE)
    assert split(clock, [1], others).batches == 1


def test_without_an_optimizer_nothing_is_said():
    times = LoopTime()
    times.note_progress(DEVICE)
    times.watch(lambda batch: None)(0)
    assert times.evidence() == LoopSeen()
