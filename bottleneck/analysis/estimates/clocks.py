"""Whether the device ran at one clock while its upper bound was measured and at another one in the job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bottleneck.analysis.estimates.statistics import mean_spread
from bottleneck.results.format import count, percent
from bottleneck.results.names import DEVICE, RAW
from bottleneck.results.records import Block, Result, Warning, blocks_of

_MARGIN = 1.03
"""As for the drops of the ladder: a step goes with the clock at most."""
_LEAST_ROUNDS = 3


def differing_clocks(measurement: Result) -> Iterator[Warning]:
    """Warn where the clocks of `device` and `raw` surely differ, and say what that means for the upper bound."""
    blocks = {e.name: blocks_of(e.coupled) for e in measurement.experiments}
    device, raw = (_by_round(blocks.get(name, ())) for name in (DEVICE, RAW))
    common = sorted(device.keys() & raw.keys())
    if len(common) < _LEAST_ROUNDS:
        return
    spread = mean_spread(np.array([math.log(device[number] / raw[number]) for number in common]))
    if abs(spread.estimate) - spread.half_width() <= math.log(_MARGIN):
        return
    at = [count(float(np.mean([clocks[number] for number in common])) / 1e6) for clocks in (device, raw)]
    if spread.estimate > 0:
        share = percent(1 - math.exp(-spread.estimate), 0)
        means = (
            f"The job's own steps can be {share} slower for it, whatever loads the data, and that is in the loss. "
            "Where the device lowers its clock because it has nothing to do, the upper bound stands; where power or "
            "heat hold the clock down, a job that is fed without a break would not reach it either"
        )
    else:
        means = (
            "The upper bound is that of the lower clock, as a device has that never waits, and the job's steps are "
            "quicker than those: at equal clocks it would lose more than is reported"
        )
    yield Warning(
        "device-clock-differs",
        f"The device ran at {at[0]} MHz in `device` and at {at[1]} MHz in raw. {means}. Fix the clock "
        "(nvidia-smi --lock-gpu-clocks) and measure again.",
    )


def _by_round(blocks: Sequence[Block]) -> dict[int, float]:
    """The mean clock of each round, weighted by time."""
    sums: dict[int, tuple[float, float]] = {}
    for block in blocks:
        if block.device_clock_hz and block.seconds > 0:
            cycles, seconds = sums.get(block.round, (0.0, 0.0))
            sums[block.round] = cycles + block.device_clock_hz * block.seconds, seconds + block.seconds
    return {number: cycles / seconds for number, (cycles, seconds) in sums.items()}
