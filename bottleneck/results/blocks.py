"""What a measurement consists of: blocks, raw as they were timed, and the rate that they add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bottleneck.results.values import Amount, Count, Number


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
