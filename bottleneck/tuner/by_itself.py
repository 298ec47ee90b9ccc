"""The train step of a variant by itself, on a batch that is there: what it says of a change before blocks are measured.

A block costs its workers' warm-up, a step does not. Where a change can gain nothing but time of the step, and steps
with it and without it take alike, no block would show more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bottleneck.results.format import duration
from bottleneck.results.tuning import Outcome
from bottleneck.tuner.climb import WORTH, interval_of_mean

if TYPE_CHECKING:
    from bottleneck.tuner.lane import Lane

_HOPELESS_TIMES = 3.0
"""Times as long as the job takes for a batch, from which on a step by itself decides."""
_QUICKER = 0.9
"""Times what a step takes without a change, from which on it is quicker with it."""
_MIN_PAIRS, _MAX_PAIRS = 3, 6
_PROMISING = 1.01
"""The factor that all pairs together have to reach for blocks to be measured."""
_LONGEST_S = 10.0
"""Time from which on no further pair of steps is run."""
_HARDLY = 0.9
"""Confidence of what is dropped."""


def why_hopeless(lane: Lane, job_s: float) -> str | None:
    """Why a variant is not worth a block: its step by itself takes far longer than all that the job does."""
    if lane.bare_step_s < _HOPELESS_TIMES * job_s:
        return None
    return f"a step takes {duration(lane.bare_step_s)}, and {duration(job_s)} without it"


def is_quicker(lane: Lane, given: Lane, sizes: tuple[int, int]) -> bool:
    """Whether a variant's step is quicker by itself than that of the job without the change.

    Args:
        sizes: Of the batches of both, in samples.
    """
    return 0 < lane.bare_step_s / sizes[0] < _QUICKER * given.bare_step_s / sizes[1]


def compare_steps(lane: Lane, given: Lane) -> tuple[Outcome | None, str, float]:
    """Run steps of a variant and of the job without the change in turns.

    Returns:
        The outcome where the step is no quicker, None where it may be; the reason; the factor by which it is quicker.
    """
    steps_s: list[tuple[float, float]] = []
    outcome: Outcome | None = None
    while len(steps_s) < _MAX_PAIRS and outcome is None:
        # A B, B A, A B: what drifts cancels.
        order = (given, lane) if len(steps_s) % 2 == 0 else (lane, given)
        taken_s = {each: each.bare_step() for each in order}
        steps_s.append((taken_s[given], taken_s[lane]))
        if len(steps_s) < _MIN_PAIRS:
            continue
        gains = interval_of_mean(np.array([math.log(without / with_it) for without, with_it in steps_s]), _HARDLY)
        if gains.high < math.log(WORTH):
            outcome = "dropped"
        elif len(steps_s) == _MAX_PAIRS and gains.estimate < math.log(_PROMISING):
            outcome = "undecided"
        elif gains.low > math.log(WORTH) or sum(map(sum, steps_s)) > _LONGEST_S:
            break
    without_s, with_s = np.mean(steps_s, axis=0)
    reason = f"a step takes {duration(with_s)} by itself, and {duration(without_s)} without it"
    return outcome, reason, math.exp(gains.estimate)
