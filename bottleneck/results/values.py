"""Numbers of a result, intervals, and blocks with their rate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

LARGEST = 1e15
"""Larger values were not measured: an estimate was divided by nearly nothing."""
MAX_COUNT = 2**53
"""Largest whole number on which JSON readers agree, because statistics calculate with floats."""
_MAX = sys.float_info.max

Number = Annotated[float, Meta(ge=-_MAX, le=_MAX)]
"""A finite number."""
Amount = Annotated[float, Meta(ge=0, le=_MAX)]
"""A finite, non-negative number."""
Quantity = Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)] | Number
"""A finite number, which stays whole if written as such."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
"""A non-negative whole number that a float holds exactly."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: Number
    low: Number
    high: Number

    def mapped(self, function: Callable[[float], float]) -> Interval:
        """Return the interval of a monotonic function."""
        low, high = sorted((function(self.low), function(self.high)))
        return Interval(function(self.estimate), low, high)


# --- blocks -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """The unit of measurement: a run of consecutive batches, timed from edge to edge."""

    round: Count
    """The round in which it was measured, from 0. Blocks of one round are compared with each other."""
    samples: Count
    """Samples processed in the block."""
    seconds: Amount
    """Wall-clock time of the block."""
    batches: Count = 0
    """Batches processed in the block."""
    first_half_seconds: Amount | None = None
    """Time until half of the batches were done; reveals a block that was not in its steady state."""
    queue_before: Count | None = None
    """Batches in the prefetch queue when the block began; None without a queue, or if unknown."""
    queue_after: Count | None = None
    """Batches in the prefetch queue when the block ended."""
    device_clock_hz: Amount | None = None
    """Clock of the device right after the block; None if unknown."""
    collecting_s: Amount | None = None
    """Time of garbage collections of all objects in the main process; None if not recorded."""


@dataclass(frozen=True)
class Rate:
    """Throughput in one experiment, and the blocks from which it was derived."""

    samples_per_s: Amount
    low: Number
    high: Number
    seconds_per_batch: Amount
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> Rate | None:
        """Return the throughput of some blocks, without an interval; None if nothing was timed."""
        timed = tuple(blocks)
        samples, seconds = sum(block.samples for block in timed), sum(block.seconds for block in timed)
        if not samples or not seconds:
            return None
        rate, batches = samples / seconds, sum(block.batches for block in timed)
        return cls(rate, rate, rate, seconds / (batches or samples), timed)


def blocks_of(rate: Rate | None) -> tuple[Block, ...]:
    """Return the blocks of a throughput; none if it was not measured."""
    return () if rate is None else rate.blocks


# --- fields of the evidence ---------------------------------------------------------------------------------


def left_out(default: Any = None) -> Any:
    """Return a field that is missing in JSON if it has its default."""
    return field(default=default, metadata={"unknown": "left out"})


def null(part: Any) -> Any:
    """Return a field with a part of the evidence, which is null in JSON if nothing in it is known."""
    return field(default=part, metadata={"unknown": "null"})
