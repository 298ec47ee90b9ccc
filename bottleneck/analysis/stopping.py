"""When enough has been measured: the state of the job, the rounds that would decide it, and the precision."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace

from bottleneck.analysis.estimates.attribution import exposed_share
from bottleneck.analysis.estimates.costs import Costs
from bottleneck.analysis.estimates.series import Readings
from bottleneck.analysis.estimates.statistics import Spread
from bottleneck.analysis.margin import LOSS_WORTH_TOUCHING
from bottleneck.results.names import COLD, COMPUTE
from bottleneck.results.records import Interval, State

LOSS_SURELY_SMALL = 0.10
"""A job that surely loses less than this, and not surely more than the other, is device bound."""
LEAST_ROUNDS = 6
"""Rounds of device and raw below which no estimate counts as precise."""

_WANTED_HALF_WIDTH = 0.03
_WANTED_RELATIVE_HALF_WIDTH = 0.1
_WANTED_RELATIVE_COST_HALF_WIDTH = 0.05
_LEAST_COST_SHARE = 0.005
"""Share of a step that the half width of a cost need not be smaller than."""
_MOST_TIMES = 10
"""What was measured so far is worth doing again so many times, and no more."""
_FEWEST_FURTHER = 3
"""Fewer move the mean more than they narrow its interval: a promise of one is broken in one of four cases."""


def loss(efficiency: Interval) -> Interval:
    """The part of the device's throughput that the input pipeline costs the job."""
    return Interval(1 - efficiency.estimate, 1 - efficiency.high, 1 - efficiency.low)


def state(efficiency: Interval | None) -> State:
    """What the interval of the efficiency says about the job."""
    if efficiency is None:
        return "undecided"
    lost = loss(efficiency)
    if lost.low > LOSS_WORTH_TOUCHING:
        return "input_bound"
    return "device_bound" if lost.high < LOSS_SURELY_SMALL else "undecided"


def further_rounds(log_efficiency: Spread | None) -> int | None:
    """How many further rounds would probably decide the state.

    The half width of a mean over n rounds shrinks like t(n - 1) / sqrt(n); the answer is the smallest n at
    which the present estimate, with the present spread between rounds, falls on one side, and at least a few. With
    fewer rounds than the least number the spread is known too badly: then it is the rounds up to that.

    Returns:
        None when the state is decided already, or when no affordable number of rounds decides it.
    """
    if log_efficiency is None:
        return LEAST_ROUNDS
    now = log_efficiency.rounds
    if _would_decide(log_efficiency, now):
        return None
    if now < LEAST_ROUNDS:
        return LEAST_ROUNDS - now
    counts = range(now + 1, _MOST_TIMES * now + 1)
    # The half width falls with the rounds, so that bisection finds the edge.
    further = 1 + bisect_left(counts, True, key=lambda rounds: _would_decide(log_efficiency, rounds))
    return max(_FEWEST_FURTHER, further) if further <= len(counts) else None


def _would_decide(log_efficiency: Spread, rounds: int) -> bool:
    """Whether the state would be decided after so many rounds of the same spread."""
    deviation = log_efficiency.standard_error * math.sqrt(log_efficiency.rounds)
    future = replace(log_efficiency, standard_error=deviation / math.sqrt(rounds), rounds=rounds)
    return state(future.exponentiated()) != "undecided"


def is_precise(readings: Readings) -> bool:
    """Whether every share of interest, and the loss, is known well enough to stop.

    Well enough: a half width of 3 points, or of a tenth of the largest share of an input stage where that is
    more. The share of `compute` does not widen the allowance, because that of a device-bound job is near one, and
    `storage`, which varies as a disk does, does not keep the measuring going.
    """
    efficiency = readings.log_efficiency()
    if efficiency is None or efficiency.rounds < LEAST_ROUNDS:
        return False
    shares = {span.name: exposed_share(readings, span) for span in readings.spans if span.outer != COLD}
    known = {name: share for name, share in shares.items() if share is not None}
    if len(known) < len(shares):
        return False
    largest = max((s.estimate for name, s in known.items() if name != COMPUTE), default=0.0)
    wanted = max(_WANTED_HALF_WIDTH, _WANTED_RELATIVE_HALF_WIDTH * largest)
    lost = loss(efficiency.exponentiated())
    half_widths = [share.half_width() for share in known.values()]
    return max([*half_widths, (lost.high - lost.low) / 2]) <= wanted


def costs_are_precise(readings: Readings, costs: Costs) -> bool:
    """Whether the cost of each stage that was left out of the loader alone is known well enough.

    Well enough: a half width of a twentieth of the cost, or of half a per cent of a step where that is more. What no
    repetition would show does not count.
    """
    if readings.raw is None:
        return False
    step_s = readings.raw.seconds_per_batch
    found = [costing for span in readings.spans if (costing := costs.costing(span.name)) is not None]
    spreads = [spread for costing in found if costing.left_out and (spread := costing.spread()) is not None]
    return all(
        spread.half_width() <= max(_WANTED_RELATIVE_COST_HALF_WIDTH * abs(spread.estimate), _LEAST_COST_SHARE * step_s)
        for spread in spreads
    )
