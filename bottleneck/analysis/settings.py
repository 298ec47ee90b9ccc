"""Margins and prices, and numbers among what a result says of the machine and of the pipeline."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from bottleneck._pydata import VERSION
from bottleneck.errors import UsageError
from bottleneck.results.evidence import Evidence, ReadsOfExperiment
from bottleneck.results.names import RAW
from bottleneck.results.records import Interval, Result, Tool, blocks_of
from bottleneck.results.starting import Starting
from bottleneck.results.values import Block

MARGIN = 1.03
"""Ratio of times below which a difference is not worth acting on, however surely it was measured."""

LOSS_WORTH_TOUCHING = 0.05
"""A job that surely loses more than this is input bound."""
LOSS_SURELY_SMALL = 0.10
"""A job that surely loses less than this, and not surely more than the other, is device bound."""


# --- keys with values of any type ---------------------------------------------------------------------------


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


def rate_unit(pipeline: Mapping[str, Any], blocks: Iterable[Block], before: Result | None = None) -> str:
    """What a throughput counts: batches, where the loader was given them whole and nothing says how large they are.

    In a tuning of many ranks, which its diagnosis `before` shows, it is that of each.
    """
    whole = "batch_size" in pipeline and pipeline["batch_size"] is None
    unit = "batches/s" if whole and all(block.samples == block.batches for block in blocks) else "samples/s"
    return unit if before is None or (before.evidence.ranks.world or 0) < 2 else f"{unit} a rank"


def unit_of(measurement: Result) -> str:
    """What the throughput of the job as it is counts."""
    blocks = (block for e in measurement.experiments if e.name == RAW for block in blocks_of(e.coupled))
    return rate_unit(measurement.pipeline, blocks)


# --- the price of a loss ------------------------------------------------------------------------------------


AnyResult = TypeVar("AnyResult", bound=Result)


def check_price(price: Any) -> float:
    """The price of a GPU hour.

    Raises:
        UsageError: It is not a number above zero and below a billion.
    """
    known = isinstance(price, (int, float)) and not isinstance(price, bool)
    if not known or not 0 < price < 1e9:
        raise UsageError(
            f"The price of a GPU hour must be a number above zero and below a billion, not {price!r}.",
            "Write for example 2.5.",
        )
    return float(price)


def with_price(result: AnyResult, price: float) -> AnyResult:
    """The result with the price of a GPU hour and what of it is lost among its evidence."""
    lost = lost_per_hour(result, price)
    return replace(result, evidence=replace(result.evidence, gpu_hour_price=price, lost_per_gpu_hour=lost))


def lost_per_hour(result: Result, price: float) -> Interval | None:
    """What the input pipeline costs in an hour of training on one GPU; None without an efficiency.

    The job gets so much of what its device can do, over a whole epoch where that is less: the rest buys nothing.
    """
    efficiency = result.verdict.judged
    return None if efficiency is None else efficiency.mapped(lambda share: price * (1 - share))


# --- reads --------------------------------------------------------------------------------------------------


def reads_of(evidence: Evidence, experiment: str) -> ReadsOfExperiment:
    """The row of an experiment: bytes and calls for each sample, and their source; nothing where it has none."""
    return next((row for row in evidence.reads.experiments if row.name == experiment), ReadsOfExperiment())


def raw_source(evidence: Evidence) -> str | None:
    """Where the job as it is reads from: `page cache`, `disk`, `unknown` or `none`; None if not measured."""
    return reads_of(evidence, RAW).source


def dataset_bytes(evidence: Evidence, pipeline: Mapping[str, Any]) -> float | None:
    """Estimate the size of the dataset from what its samples read; None where that is unknown."""
    length = number(pipeline, "dataset_length")
    row = reads_of(evidence, RAW)
    asked = row.asked_bytes_per_sample
    if length is None or asked is None or raw_source(evidence) not in ("page cache", "disk"):
        return None
    return length * max(asked, row.storage_bytes_per_sample or 0.0)


def fits_in_memory(evidence: Evidence, pipeline: Mapping[str, Any], environment: Mapping[str, Any]) -> bool | None:
    """Whether the page cache could hold the dataset from one epoch to the next; None where that is unknown."""
    size, memory = dataset_bytes(evidence, pipeline), positive(environment, "memory_bytes")
    return None if size is None or memory is None else size < memory


def collecting_share(measurement: Result) -> float:
    """The part of the main process's time in which Python collects garbage among all objects, in the job as it is."""
    noted = [block for e in measurement.experiments if e.name == RAW for block in blocks_of(e.coupled)]
    whole_s = sum(block.seconds for block in noted)
    return sum(block.collecting_s or 0.0 for block in noted) / whole_s if whole_s > 0 else 0.0


MIN_SLOW_START_S = 5.0
"""A job that starts up sooner needs no word about it."""


def starts_slowly(starting: Starting) -> bool:
    """Whether starting up takes so long that it is told."""
    return (over_0(starting.seconds) or 0.0) >= MIN_SLOW_START_S
