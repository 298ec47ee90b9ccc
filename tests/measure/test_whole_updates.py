"""A script's loop ends its epochs and evaluates when it wants to; that is no step."""

import pytest

from bottleneck.measure.options import Loop, MeasureOptions
from tests.support.sessions import PRECISE, blocks, invented_time, pipeline_of, run, warnings_of


def measure(*, epoch):
    """A loop that evaluates for three seconds after so many batches."""
    loop, clock, steps = Loop(), invented_time(), []

    def step(batch):
        steps.append(batch)
        clock.advance(0.05)
        if len(steps) % epoch == 0:
            loop.breaks += 1
            clock.advance(3.0)

    options = MeasureOptions(budget_s=120.0, loop=loop)
    return run(pipeline_of(train_step=step, num_workers=0), options, lambda _: PRECISE, clock=clock)


@pytest.mark.parametrize(("epoch", "warned"), [(100, False), (2, True)])
def test_a_block_in_which_it_breaks_off_is_made_again_unless_all_are(epoch, warned):
    outcome = measure(epoch=epoch)
    held = [block.seconds / block.batches > 1.0 for found in blocks(outcome).values() for block in found]
    assert any(held) == warned
    assert ("loop-breaks-off" in warnings_of(outcome)) == warned
