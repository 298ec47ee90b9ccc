"""Full garbage collections of the main process, shared out evenly over the blocks that bring them about.

Batches of many Python objects make Python look through all objects every few batches, for as long as several batches
take. Short blocks that have one, or have none, differ by far more than the stages do, and few rounds do not even that
out. How often they come goes with the objects that are received, and these are the same in all experiments that get
their batches from workers. So each batch of them is given the mean of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bottleneck.results.records import Block

_WORTH_SHARING_OUT = 0.02
"""Share of the time of all blocks; below it the scatter of the rounds has them in it."""
_SD_OF_COUNT = 0.5
"""Standard deviation of the collections in a block that begins anywhere between two of them, at most."""


@dataclass(frozen=True)
class Shared:
    """Blocks that are alike, each with the mean of all in the place of its own collections."""

    blocks: Mapping[str, tuple[Block, ...]]
    error_s_per_batch: float = 0.0
    """Half the width of the 95 % interval of that mean."""


def share_out(named: Iterable[tuple[str, tuple[Block, ...]]]) -> Shared:
    """Share the collections of some experiments out over all of their blocks, by batches."""
    blocks = dict(named)
    noted = [block for own in blocks.values() for block in own if block.collecting_s is not None]
    collecting = [block.collecting_s for block in noted if block.collecting_s]
    batches = sum(block.batches for block in noted)
    if not batches or sum(collecting) < _WORTH_SHARING_OUT * sum(block.seconds for block in noted):
        return Shared(blocks)
    mean_s = sum(collecting) / batches
    # At least one in each block that has any: what a single one takes is that at most.
    one_s = sum(collecting) / len(collecting)
    error_s = 2 * _SD_OF_COUNT * math.sqrt(len(noted)) * one_s / batches
    shared = {name: tuple(_with_mean(block, mean_s) for block in own) for name, own in blocks.items()}
    return Shared(shared, error_s)


def _with_mean(block: Block, mean_s: float) -> Block:
    if block.collecting_s is None:
        return block
    return replace(block, seconds=max(0.0, block.seconds - block.collecting_s) + mean_s * block.batches)
