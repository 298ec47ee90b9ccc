"""Margins and prices, and numbers of the machine and of the pipeline in a result."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from bottleneck._pydata import VERSION
from bottleneck.errors import UsageError
from bottleneck.results.evidence import Evidence, ExperimentUsage, ReadsOfExperiment
from bottleneck.results.names import RAW
from bottleneck.results.records import Interval, Result, Tool, blocks_of
from bottleneck.results.starting import Starting
from bottleneck.results.values import Block

MARGIN = 1.03
"""Ratio of times below which a difference is not worth acting on, however precisely it was measured."""

LOSS_WORTH_TOUCHING = 0.05
"""Lost share of throughput above which a job is clearly input-bound."""
LOSS_CLEARLY_SMALL = 0.10
"""Lost share of throughput below which a job is clearly device-bound, unless it clearly exceeds the other edge."""

MOSTLY = 0.5
"""Share of a time above which it is mostly one thing, such as waiting."""


# --- keys with values of any type ---------------------------------------------------------------------------


THIS_TOOL = Tool("torch-bottleneck", VERSION)


def number(part: Mapping[str, Any], key: str) -> float | None:
    """Return a number of the environment or the pipeline; None if it is unknown or does not fit a float."""
    found = part.get(key)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return found if abs(found) <= sys.float_info.max else None


def positive(part: Mapping[str, Any], key: str) -> float | None:
    """Return the same for a count or a measure; None unless it is over 0."""
    return over_0(number(part, key))


def over_0(found: float | None) -> float | None:
    """Return a count or a measure; None unless it is over 0."""
    return found if found is not None and found > 0 else None


def rate_unit(pipeline: Mapping[str, Any], blocks: Iterable[Block], before: Result | None = None) -> str:
    """Return the unit of a throughput: batches if the loader got whole ones of unknown size, otherwise samples.

    In a tuning of many ranks, which its diagnosis `before` shows, it is that of each.
    """
    whole = "batch_size" in pipeline and pipeline["batch_size"] is None
    unit = "batches/s" if whole and all(block.samples == block.batches for block in blocks) else "samples/s"
    return unit if before is None or (before.evidence.ranks.world or 0) < 2 else f"{unit} a rank"


def unit_of(measurement: Result) -> str:
    """Return the unit of the throughput of the unmodified job."""
    blocks = (block for e in measurement.experiments if e.name == RAW for block in blocks_of(e.coupled))
    return rate_unit(measurement.pipeline, blocks)


# --- the price of a loss ------------------------------------------------------------------------------------


AnyResult = TypeVar("AnyResult", bound=Result)


def check_price(price: Any) -> float:
    """Return the price of a GPU hour.

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
    """Return the result with the price of a GPU hour and the lost part of it among its evidence."""
    lost = lost_per_hour(result, price)
    return replace(result, evidence=replace(result.evidence, gpu_hour_price=price, lost_per_gpu_hour=lost))


def lost_per_hour(result: Result, price: float) -> Interval | None:
    """Return the money that the input pipeline costs in an hour of training on one GPU; None without an efficiency.

    The job gets that share of what its device can do, over a whole epoch if that is less: the rest is lost.
    """
    efficiency = result.verdict.judged
    return None if efficiency is None else efficiency.mapped(lambda share: price * (1 - share))


# --- reads --------------------------------------------------------------------------------------------------


def reads_of(evidence: Evidence, experiment: str) -> ReadsOfExperiment:
    """Return the row of an experiment: bytes and calls for each sample, and their source; empty if it has none."""
    return next((row for row in evidence.reads.experiments if row.name == experiment), ReadsOfExperiment())


def raw_source(evidence: Evidence) -> str | None:
    """Return the source of the job's reads: `page cache`, `disk`, `unknown` or `none`; None if not measured."""
    return reads_of(evidence, RAW).source


def dataset_bytes(evidence: Evidence, pipeline: Mapping[str, Any]) -> float | None:
    """Estimate the size of the dataset from the bytes that its samples read; None if unknown."""
    length = number(pipeline, "dataset_length")
    row = reads_of(evidence, RAW)
    asked = row.asked_bytes_per_sample
    if length is None or asked is None or raw_source(evidence) not in ("page cache", "disk"):
        return None
    return length * max(asked, row.storage_bytes_per_sample or 0.0)


def fits_in_memory(evidence: Evidence, pipeline: Mapping[str, Any], environment: Mapping[str, Any]) -> bool | None:
    """Return True if the page cache could hold the dataset from one epoch to the next; None if unknown."""
    size, memory = dataset_bytes(evidence, pipeline), positive(environment, "memory_bytes")
    return None if size is None or memory is None else size < memory


def collecting_share(measurement: Result) -> float:
    """Return the part of the main process's time that Python collects garbage among all objects, in the job."""
    noted = [block for e in measurement.experiments if e.name == RAW for block in blocks_of(e.coupled)]
    whole_s = sum(block.seconds for block in noted)
    return sum(block.collecting_s or 0.0 for block in noted) / whole_s if whole_s > 0 else 0.0


MIN_SLOW_START_S = 5.0
"""Minimum time of starting up that reports mention."""


def starts_slowly(starting: Starting) -> bool:
    """Return True if starting up takes so long that reports mention it."""
    return (over_0(starting.seconds) or 0.0) >= MIN_SLOW_START_S


def raw_usage(evidence: Evidence, name: str = RAW, mode: str = "coupled") -> ExperimentUsage | None:
    """Return the usage of an experiment; None if not measured."""
    return next((row for row in evidence.utilisation.experiments if (row.name, row.mode) == (name, mode)), None)
