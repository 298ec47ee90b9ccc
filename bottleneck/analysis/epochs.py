"""A whole epoch of the job: its batches, and the time that its start adds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bottleneck.analysis.readings import Readings
from bottleneck.analysis.settings import number
from bottleneck.analysis.statistics import Series, Spread, jackknife
from bottleneck.results.evidence import EpochGap, Evidence
from bottleneck.results.names import RAW
from bottleneck.results.records import Interval

_WORTH_A_WORD = 0.01
"""Part of an epoch below which its beginning changes no number that is printed."""


@dataclass(frozen=True)
class Epoch:
    """An epoch, and the parts of its start.

    The wait for the first batch is not all lost: if the loader is slower than the step, other workers meanwhile make
    batches that the job would have waited for later. That holds for the last turn of the workers only: after it they
    are idle while the others finish. `gap_s` is the lost part.
    """

    batches: float
    step_s: float
    """Seconds per step of the unmodified job."""
    gap_s: Interval
    """Seconds that the start adds to the time of the batches."""
    start_s: float
    """Seconds to start the workers; 0 if they stay."""
    first_batch_s: float
    """The wait for a batch of workers that have none ready; 0 without workers."""
    order_s: float
    """Choosing the order of the samples."""

    @property
    def seconds(self) -> float:
        """Seconds of the whole epoch."""
        return self.batches * self.step_s + self.gap_s.estimate

    @property
    def gain_of_kept_workers(self) -> Interval:
        """Largest factor of throughput over an epoch if the workers were started only once."""
        saved_s = min(self.start_s, self.gap_s.estimate)
        least_s = max(0.0, saved_s - (self.gap_s.estimate - self.gap_s.low))
        at_most, at_least = (1 + saved / (self.seconds - saved_s) for saved in (saved_s, least_s))
        return Interval(at_most, at_least, at_most)


def find_epoch(readings: Readings, evidence: Evidence, pipeline: Mapping[str, Any]) -> Epoch | None:
    """Return an epoch with the parts of its start; None if its length or its start is unknown."""
    batches, waits_s = _batches(evidence.epoch_gap, pipeline), _waits_s(evidence, pipeline)
    raw, device = readings.raw, readings.device
    if batches is None or waits_s is None or raw is None or device is None:
        return None
    size = raw.samples_per_batch
    # If the loader alone lacks the two rounds of an interval, the job replaces it, which is never faster.
    for loader in filter(None, (readings.drained.get(RAW), raw)):
        behind = jackknife(lambda made, taken: (made - taken) * size, (loader, device))
        if behind is not None:
            break
    else:
        return None
    workers = number(pipeline, "num_workers") or 0
    order_s = min(waits_s.estimate, evidence.epoch_gap.order_s or 0.0)
    start_s, first_s = 0.0, waits_s.estimate - order_s
    if evidence.epoch_gap.started_anew is not False:
        # A worker that stays still has to make its first batch, alone.
        made_s = min(first_s, workers * loader.seconds_per_sample * size)
        start_s, first_s = (first_s - made_s if workers else 0.0), made_s
    most_s = max(0.0, first_s - device.seconds_per_sample * size)
    at_once = max(1, int(workers))
    last_turn = batches - at_once * (math.ceil(batches / at_once) - 1)

    def made_meanwhile_s(behind_s: float) -> float:
        return min(most_s, max(0.0, last_turn * behind_s))

    lag = behind.interval()
    gap_s = Interval(
        waits_s.estimate - made_meanwhile_s(lag.estimate),
        max(0.0, waits_s.low - made_meanwhile_s(lag.high)),
        # Workers that are uneven end their last batches one after the other: up to all of the wait is lost then.
        waits_s.high,
    )
    return Epoch(batches, raw.seconds_per_batch, gap_s, start_s, first_s, order_s)


def log_epoch_efficiency(readings: Readings, epoch: Epoch) -> Spread | None:
    """Estimate the logarithm of the efficiency over the epoch; its start has a separate error."""
    bound, raw = readings.upper_bound, readings.raw
    if bound is None or raw is None:
        return None
    whole = _over_epoch(epoch, epoch.gap_s.estimate, raw, bound[1])
    slow, fast = (_over_epoch(epoch, gap_s, raw, bound[1]) for gap_s in (epoch.gap_s.high, epoch.gap_s.low))
    if whole is None or slow is None or fast is None:
        return None
    below = max(whole.estimate - slow.estimate, readings.faster_than_loader)
    return Spread(whole.estimate, whole.standard_error, whole.rounds, below, above=fast.estimate - whole.estimate)


def clearly_lower(readings: Readings, epoch: Epoch) -> bool:
    """Return True if the efficiency over the epoch is clearly lower than that of its batches, so that it shows."""
    raw = readings.raw
    spread = None if raw is None else _over_epoch(epoch, epoch.gap_s.low, raw, raw)
    return spread is not None and spread.exponentiated().high < 1 - _WORTH_A_WORD


def _over_epoch(epoch: Epoch, gap_s: float, raw: Series, free: Series) -> Spread | None:
    """Estimate the log of the time of an epoch's batches when free, over that of the whole actual epoch."""
    added_s = gap_s / (epoch.batches * raw.samples_per_batch)
    return jackknife(lambda less, more: np.log(less / (more + added_s)), (free, raw))


def _batches(gap: EpochGap, pipeline: Mapping[str, Any]) -> float | None:
    """Return the batches of an epoch: as counted, or from the settings if the start of epochs was not measured."""
    if gap.batches is not None or gap.low_s is not None:
        return gap.batches or None
    length, size = (number(pipeline, key) for key in ("dataset_length", "batch_size"))
    batches = length / size if length and size else 0.0
    return batches if batches > 0 else None


def _waits_s(evidence: Evidence, pipeline: Mapping[str, Any]) -> Interval | None:
    """Return the seconds that the job waits for the first batch of an epoch."""
    gap, seconds = evidence.epoch_gap, evidence.epoch_gap.seconds
    if seconds is None and number(pipeline, "num_workers") and pipeline.get("persistent_workers") is False:
        seconds = evidence.first_batch_s
    if seconds is None or seconds < 0:
        return None
    low, high = (seconds if bound is None else bound for bound in (gap.low_s, gap.high_s))
    return Interval(seconds, min(max(low, 0.0), seconds), max(high, seconds))
