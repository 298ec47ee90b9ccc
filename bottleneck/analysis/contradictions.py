"""Pairs of numbers that cannot both be true: doing more is never faster than doing less, in the long run.

What may still be noise of the method is left out: a difference that is not sure beyond a margin. For experiments whose
batches come from memory that margin is the 3 % below which nothing is called real. A block of the loader begins and
ends right after a batch, so that it may count one batch more or less than the loader makes in that time: there the
margin is one batch of a block, where that is more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from bottleneck.analysis.estimates.attribution import exposed_share
from bottleneck.analysis.estimates.series import Readings
from bottleneck.analysis.estimates.statistics import Series, align, log_ratio
from bottleneck.analysis.margin import MARGIN
from bottleneck.results.format import count, duration, gain_interval
from bottleneck.results.names import COLD, COMPUTE, DEVICE, RAW
from bottleneck.results.records import Interval

_FAMILY_CONFIDENCE = 0.95

_OTHER_BATCHES = (
    "Batches of other shapes, another clock of the device, or other load may be the reason: measure again with a "
    "larger --budget, on a quiet machine."
)
_FULL_QUEUE = (
    "Its blocks were served from batches that were made before they began: measure again with a larger --budget, for "
    "longer blocks."
)


@dataclass(frozen=True)
class Contradiction:
    """Two numbers that cannot both be true, and what to do about it."""

    what: str
    remedy: str
    lead: str = "two numbers contradict each other"
    id: str = "contradiction"
    """Of its warning."""


@dataclass(frozen=True)
class _Pair:
    """A ratio that cannot be over one."""

    ratio: Callable[[float], Interval]
    """Its interval at a given confidence."""
    margin: float
    """What it has to be surely over."""
    what: str
    """The two numbers."""
    remedy: str
    decides: bool = False
    """The efficiency is made of it: there the interval that is printed decides, at 95 % by itself."""


def find_contradiction(
    readings: Readings, forgotten: str | None = None, unit: str = "samples/s"
) -> Contradiction | None:
    """The first two numbers that surely contradict each other, at 95 % over all pairs together (Bonferroni).

    Args:
        readings: Of the experiments.
        forgotten: A dict in which workers kept samples, which those of the job do not find there.
        unit: What a throughput counts.
    """
    if forgotten is not None:
        return _not_the_job(forgotten)
    pairs = list(_pairs(readings, unit))
    for pair in pairs:
        found = pair.ratio(_FAMILY_CONFIDENCE if pair.decides else 1 - (1 - _FAMILY_CONFIDENCE) / len(pairs))
        if found.low > pair.margin:
            times = gain_interval(pair.ratio(_FAMILY_CONFIDENCE))
            return Contradiction(f"{pair.what}: {times} as much", pair.remedy)
    return None


def _not_the_job(forgotten: str) -> Contradiction:
    return Contradiction(
        f"{forgotten} of the dataset keeps samples, which the workers of a diagnosis still have in later epochs; those "
        "of the job are not persistent, and load them again in each epoch",
        "Set persistent_workers=True, or load everything once before the workers start, and measure again.",
        lead="what was measured is faster than the job",
        id="dataset-keeps-samples",
    )


def _pairs(readings: Readings, unit: str) -> Iterator[_Pair]:
    compare = partial(_compare, unit)
    raw, device, loader = readings.raw, readings.device, readings.drained.get(RAW)
    if raw is not None and device is not None:
        for pair in compare(RAW, raw, DEVICE, device, MARGIN, _OTHER_BATCHES):
            yield replace(pair, decides=True)
    if raw is not None and loader is not None:
        yield from compare(RAW, raw, "the loader alone", loader, max(MARGIN, _one_batch(raw, loader)), _FULL_QUEUE)
    if device is not None:
        for stage, without in readings.without.items():
            yield from compare(f"{RAW} without {stage}", without, DEVICE, device, MARGIN, _OTHER_BATCHES)
    for span in readings.spans:
        share = exposed_share(readings, span) if span.name != COMPUTE and span.outer != COLD else None
        if share is not None and raw is not None:
            step_s = raw.seconds_per_batch
            added = f"{span.name} adds {duration(share.estimate * step_s)} to a step"
            what = f"{added}, and the whole step with it takes {duration(step_s)}"
            yield _Pair(share.interval, MARGIN, what, _OTHER_BATCHES)


def _compare(
    unit: str, more: str, quick: Series, less: str, slow: Series, margin: float, remedy: str
) -> Iterator[_Pair]:
    """The throughput of an experiment over that of one that does less, if both were measured together."""
    spread = log_ratio(slow, quick)
    if spread is None:
        return
    quick, slow = align((quick, slow))
    got, of_less = count(quick.samples_per_s), count(slow.samples_per_s)
    what = f"{more} got {got} {unit}, and {less}, which does less, {of_less}"
    yield _Pair(spread.exponentiated, margin, what, remedy)


def _one_batch(raw: Series, loader: Series) -> float:
    """How many times as fast a block seems that counts one batch too many."""
    raw, loader = align((raw, loader))
    batches = min((float(blocks.batches.mean()) for blocks in (raw, loader) if len(blocks)), default=0.0)
    return 1 + 1 / batches if batches > 0 else float("inf")
