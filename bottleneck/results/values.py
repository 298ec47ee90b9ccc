"""Numbers as a result may hold them, intervals, and blocks with the rate that they add up to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

LARGEST = 1e15
"""What is beyond it was not measured: an estimate divided by nearly nothing."""
MAX_COUNT = 2**53
"""The largest whole number up to which JSON readers agree; statistics calculate with floats."""
_MAX = sys.float_info.max

Number = Annotated[float, Meta(ge=-_MAX, le=_MAX)]
"""A finite number."""
Amount = Annotated[float, Meta(ge=0, le=_MAX)]
"""A finite number that is not negative."""
Quantity = Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)] | Number
"""A finite number, which stays whole where it is written as such."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
"""A whole number that is not negative, and that a float holds exactly."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: Number
    low: Number
    high: Number

    def mapped(self, function: Callable[[float], float]) -> Interval:
        """The interval of a function that only grows, or only falls."""
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
    """Time until half of the batches were done; shows a block that had not reached its steady state."""
    queue_before: Count | None = None
    """Batches that lay ready in the loader's queue when it began; None without a queue, or where that is unknown."""
    queue_after: Count | None = None
    """The same when it ended."""
    device_clock_hz: Amount | None = None
    """Clock of the device right after the block; None where it is unknown."""
    collecting_s: Amount | None = None
    """Time of the block in which Python collected all garbage of the main process; None where that was not noted."""


@dataclass(frozen=True)
class Rate:
    """Throughput in one experiment, and the blocks it was derived from."""

    samples_per_s: Amount
    low: Number
    high: Number
    seconds_per_batch: Amount
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> Rate | None:
        """The throughput of some blocks, before any analysis: without an interval. None where nothing was timed."""
        timed = tuple(blocks)
        samples, seconds = sum(block.samples for block in timed), sum(block.seconds for block in timed)
        if not samples or not seconds:
            return None
        rate, batches = samples / seconds, sum(block.batches for block in timed)
        return cls(rate, rate, rate, seconds / (batches or samples), timed)


def blocks_of(rate: Rate | None) -> tuple[Block, ...]:
    """The blocks of a throughput; none where it was not measured."""
    return () if rate is None else rate.blocks


# --- fields of the evidence ---------------------------------------------------------------------------------


def left_out(default: Any = None) -> Any:
    """A field that is missing in JSON where it holds its default."""
    return field(default=default, metadata={"unknown": "left out"})


def null(part: Any) -> Any:
    """A field that holds a part of the evidence, and is null in JSON where nothing in that is known."""
    return field(default=part, metadata={"unknown": "null"})
