"""The state of a job whose batches come slowly: raw as it runs from its start, then device, with nothing recorded.

To record, and to switch to each experiment, takes every worker a batch or two. With 64 workers that each take a
minute for a batch, that alone is longer than any budget, while the job that was started runs already.
"""

from __future__ import annotations

import math

from bottleneck.loader import modes
from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.ladder import Arm
from bottleneck.measure.ledger import Ledger

ROUNDS = 3
_SLOW_SHARE = 0.15
"""Share of the budget: where the first batch took longer, the state comes first."""
_SLOW_S = 5.0
"""Not where that is the start of the workers alone."""
_BLOCK_S = 1.5
_FEWEST_BATCHES = 2
_BATCHES_FOR_STAGES = 5
"""How many times what the first batch took the stages take at least: recording, two switches, and a block or two."""
_BATCHES_TO_NAME_ONE = 15


def is_slow(first_batch_s: float, budget_s: float) -> bool:
    """Whether the state of a job should be measured before anything is recorded."""
    return first_batch_s > max(_SLOW_S, _SLOW_SHARE * budget_s)


def too_slow_for_stages(first_batch_s: float, spent_s: float, budget_s: float) -> tuple[str, str] | None:
    """Return id and message of a warning where there is no time to measure anything of the stages."""
    if budget_s - spent_s > _BATCHES_FOR_STAGES * first_batch_s:
        return None
    wanted_s = spent_s + _BATCHES_TO_NAME_ONE * first_batch_s
    return (
        "too-slow-for-stages",
        f"The first batch took {first_batch_s:.0f} s. The budget was enough for how the job runs as a whole, and not "
        f"for its stages: give it --budget {math.ceil(wanted_s / 60)}m.",
    )


def measure_running_start(bench: Bench, ledger: Ledger) -> None:
    """Measure raw without a break, and then device; both get the rounds 1 to `ROUNDS`.

    The loader was started, and has been asked for nothing but real batches.
    """
    raw, device = Arm(modes.ALL, "loader"), Arm(None, "device")
    bench.measure(device, 0, 1)  # the workers are busy: this says about how long a step is, and no more
    bench.waits_s.clear()
    step_s = bench.step_s or 0.0
    bench.prepare_running(_BLOCK_S)
    # Together a turn of all workers at least, which began together: within one there may be no wait, or all of it.
    batches = max(block_batches(raw, step_s, _BLOCK_S, 1), math.ceil(bench.loader.num_workers / ROUNDS))
    until_s, bench.until_s = bench.until_s, bench.clock()  # no time to wait for the queue to be as it was
    for number in range(1, ROUNDS + 1):
        ledger.add(raw, bench.measure(raw, number, batches))
    bench.until_s = until_s
    bench.prepare(device)
    batches = max(_FEWEST_BATCHES, block_batches(device, step_s, _BLOCK_S, 0))
    for number in range(1, ROUNDS + 1):
        ledger.add(device, bench.measure(device, number, batches))
