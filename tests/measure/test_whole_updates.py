"""A script's loop ends its epochs and evaluates when it wants to; that is no step."""

import pytest

from bottleneck.measure.options import Loop, MeasureOptions
from tests.support.sessions import PRECISE, blocks, invented_time, pipeline_of, run, warnings_of


def measure(*, epoch, **loop):
    """A loop that evaluates for three seconds after so many batches."""
    loop, clock, steps = Loop(batches_ahead=1, **loop), invented_time(), []

    def step(batch):
        steps.append(batch)
        clock.advance(0.05)
        if len(steps) % epoch == 0:
            loop.breaks += 1
            clock.advance(3.0)

    options = MeasureOptions(budget_s=120.0, loop=loop)
    return run(pipeline_of(train_step=step, num_workers=0), options, lambda _: PRECISE, clock=clock)


@pytest.mark.parametrize(
    ("epoch", "loop", "warned"),
    [
        (100, {}, False),
        (2, {}, False),
        (1, {}, True),
        (100, {"has_queue": True}, False),
        (2, {"has_queue": True}, True),
    ],
)
def test_a_step_in_which_it_breaks_off_counts_only_where_it_cannot_be_left_out(epoch, loop, warned):
    # Guards: epochs of 16 batches, whose validation made a job that waits for a quarter of its time compute-bound.
    outcome = measure(epoch=epoch, **loop)
    held = [block.seconds / block.batches > 0.5 for found in blocks(outcome).values() for block in found]
    assert any(held) == warned
    assert ("loop-breaks-off" in warnings_of(outcome)) == warned
