"""Numbers among what a result says of the machine and of the pipeline: any keys, with values of any type."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from bottleneck._pydata import VERSION
from bottleneck.results.blocks import Block
from bottleneck.results.names import RAW
from bottleneck.results.records import Result, Tool, blocks_of

THIS_TOOL = Tool("torch-bottleneck", VERSION)


def number(part: Mapping[str, Any], key: str) -> float | None:
    """A number of the environment or the pipeline; None where it is unknown, or none that a float holds."""
    found = part.get(key)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return found if abs(found) <= sys.float_info.max else None


def positive(part: Mapping[str, Any], key: str) -> float | None:
    """The same, of what counts or measures something; None unless it is over 0."""
    return over_0(number(part, key))


def over_0(found: float | None) -> float | None:
    """What counts or measures something; None unless it is over 0."""
    return found if found is not None and found > 0 else None


def rate_unit(pipeline: Mapping[str, Any], blocks: Iterable[Block]) -> str:
    """What a throughput counts: batches, where the loader was given them whole and nothing says how large they are."""
    whole = "batch_size" in pipeline and pipeline["batch_size"] is None
    return "batches/s" if whole and all(block.samples == block.batches for block in blocks) else "samples/s"


def unit_of(measurement: Result) -> str:
    """What the throughput of the job as it is counts."""
    blocks = (block for e in measurement.experiments if e.name == RAW for block in blocks_of(e.coupled))
    return rate_unit(measurement.pipeline, blocks)
