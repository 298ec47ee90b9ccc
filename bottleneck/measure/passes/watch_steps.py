"""Watch some steps of the job, and at the same time what each worker does: nothing of it is in a timed block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bottleneck.loader import modes
from bottleneck.loader.observe.batch_made import BatchMade
from bottleneck.measure.bench import Bench
from bottleneck.measure.ladder import Arm
from bottleneck.results.evidence import BatchWatched, StepWatched, Watched

WATCH_STEPS_S, WATCH_STEPS_SHARE = 2.0, 0.04
"""How long steps are watched, at most, and as a share of the budget."""
WATCH_STEPS_SHARE_OF_REST = 0.25
"""The same as a share of what is left of the budget, of which the queue takes more until it is as it was."""
_MOST_STEPS, _FEWEST_STEPS = 32, 4
_ARM = Arm(modes.ALL | modes.TIME_STAGES, "loader")

Times = tuple[float, float, float]
"""When a step asks for its batch, gets it, and is done [s]."""


def watch_steps(bench: Bench, limit_s: float, step_s: float | None) -> Watched:
    """Run some steps with workers that note their times; nothing where there is no time for enough of them.

    Args:
        limit_s: Time for the steps; as much again goes by until the queue is as it was.
        step_s: What a step of the job takes; None: not known.
    """
    queue = bench.loader.queue_length
    if not step_s or step_s * max(queue, _FEWEST_STEPS) > limit_s:
        return Watched()
    bench.prepare(_ARM)
    steps = [_step(bench) for _ in range(min(_MOST_STEPS, max(_FEWEST_STEPS, int(limit_s / step_s))))]
    bench.synchronize()
    bench.loader.rest()
    return describe_watched(steps, bench.loader.batches_made())


def _step(bench: Bench) -> Times:
    asked_s = bench.clock()
    batch, samples = bench.loader.next_batch()
    received_s = bench.clock()
    bench.step(bench.transfer(batch))
    bench.batches, bench.samples = bench.batches + 1, bench.samples + samples
    return asked_s, received_s, bench.clock()


def describe_watched(steps: Sequence[Times], made: Mapping[int, Sequence[BatchMade]]) -> Watched:
    """Return steps and batches as evidence, from the first step on.

    Args:
        steps: Step after step.
        made: The batches of each worker, by the same clock.
    """
    if not steps or not made:
        return Watched()
    zero_s, end_s = steps[0][0], steps[-1][2]
    seen = (
        StepWatched(begin_s=asked_s - zero_s, wait_s=got_s - asked_s, work_s=done_s - got_s)
        for asked_s, got_s, done_s in steps
    )
    return Watched(steps=tuple(seen), batches=tuple(_batches(made, zero_s, end_s)))


def _batches(made: Mapping[int, Sequence[BatchMade]], zero_s: float, end_s: float) -> Iterator[BatchWatched]:
    """The batches that were made between the first step and the last; of the first ones, only the end may be."""
    for worker, batches in sorted(made.items()):
        for batch in batches:
            if zero_s < batch.end_s <= end_s:
                yield BatchWatched(
                    worker=worker,
                    begin_s=batch.begin_s - zero_s,
                    end_s=batch.end_s - zero_s,
                    stages_s=dict(batch.stages),
                )
