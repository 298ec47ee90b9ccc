"""A measurement, summed by round once: the input of all of the analysis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bottleneck.analysis.settings import MARGIN
from bottleneck.analysis.statistics import (
    CONFIDENCE,
    Series,
    Spread,
    align,
    jackknife,
    log_ratio,
    series,
    shared_by,
    t_quantile,
)
from bottleneck.analysis.workers import Workers
from bottleneck.results.evidence import RecordedBatches
from bottleneck.results.names import DEVICE, HANDOFF, HOST, RAW
from bottleneck.results.records import Block, Experiment, Interval, Rate, Result, Stage, Without, blocks_of

# --- full garbage collections -------------------------------------------------------------------------------


_WORTH_SHARING_OUT = 0.02
"""Share of the time of all blocks; below it the scatter of the rounds has them in it."""
_SD_OF_COUNT = 0.5
"""Standard deviation of the collections in a block that begins anywhere between two of them, at most."""
_MIN_NOTED = 6
"""Blocks whose scatter tells how evenly collections come."""


def share_out(blocks: Mapping[str, tuple[Block, ...]]) -> tuple[Mapping[str, tuple[Block, ...]], float]:
    """Share the collections of some experiments out over all of their blocks, by batches.

    Returns:
        The blocks, and half the width of the 95 % interval of the shared time [s per batch].
    """
    noted = [block for own in blocks.values() for block in own if block.collecting_s is not None]
    collecting = [block.collecting_s for block in noted if block.collecting_s]
    batches = sum(block.batches for block in noted)
    if not batches or sum(collecting) < _WORTH_SHARING_OUT * sum(block.seconds for block in noted):
        return blocks, 0.0
    mean_s = sum(collecting) / batches
    # At least one in each block that has any: what a single one takes is that at most.
    one_s = sum(collecting) / len(collecting)
    sd_s = _SD_OF_COUNT * one_s
    if len(noted) >= _MIN_NOTED:  # a loop that collects at each of its steps has as many in each block
        over_mean_s = [(block.collecting_s or 0.0) - mean_s * block.batches for block in noted]
        sd_s = min(sd_s, float(np.std(over_mean_s, ddof=1)))
    error_s = 2 * math.sqrt(len(noted)) * sd_s / batches
    return {name: tuple(_with_mean(block, mean_s) for block in own) for name, own in blocks.items()}, error_s


def _with_mean(block: Block, mean_s: float) -> Block:
    if block.collecting_s is None:
        return block
    return replace(block, seconds=max(0.0, block.seconds - block.collecting_s) + mean_s * block.batches)


# --- readings -----------------------------------------------------------------------------------------------


_MAX_CLOCKS_MISS = math.log(1.3)
"""Logarithm of the factor by which the job may be slower than its workers' clocks predict."""
_WITHOUT = "without "
_MIN_RECORDED = 2
_WIDEST_RECORDED_ERROR = 1.0
"""At that nothing is known."""


@dataclass(frozen=True)
class Readings:
    """Series by experiment name, and by stage for 'without X'. Experiments without a block are missing."""

    coupled: Mapping[str, Series]
    drained: Mapping[str, Series]
    workers: Mapping[str, Series]
    without: Mapping[str, Series]
    alone_without: Mapping[str, Series]
    """The workers alone, or the loader alone if there are none, without a stage."""
    serving: Series | None
    """All of the loader alone, with the replay overhead that each experiment without a stage has."""
    receiving_s_per_batch: float
    """Seconds of the main process to receive an empty batch; 0 if unknown."""
    loop_s_per_batch: float
    """Seconds per batch of the blocks' loop besides the train step; 0 if a device runs asynchronously."""
    step_s_per_batch: float | None
    """Seconds per batch of the train step within the job; None if a device runs asynchronously."""
    sampling_error: float
    """Relative sampling error of the recorded batches: half the width of a 95 % interval; 0 if all are equal."""
    collecting_error_s: float
    """Half the 95 % interval of the garbage collection's seconds per batch with the train step."""
    in_main_process: bool
    """The loader runs in the process that trains."""
    clocks: Workers | None
    """Workers, as their own clocks show them; None if unknown."""
    spans: tuple[Stage, ...]

    @property
    def raw(self) -> Series | None:
        """The unmodified job."""
        return self.coupled.get(RAW)

    @property
    def device(self) -> Series | None:
        """The job with its input on the device already."""
        return self.coupled.get(DEVICE)

    @cached_property
    def upper_bound(self) -> tuple[str, Series] | None:
        """Upper bound of the job: `device`, or a clearly faster run of the train step with less of the loader.

        A step that runs alone is slower than the same step next to busy workers if idle cores sleep deeply, and an idle
        device clocks down. A speed that the step reached in a job with less to do is possible.
        """
        if self.device is None:
            return None
        apart = {DEVICE, RAW, *(span.outer for span in self.spans if span.is_alternative)}
        others = {name: run for name, run in self.coupled.items() if name not in apart}
        others |= {_WITHOUT + stage: run for stage, run in self.without.items()}
        confidence = shared_by(CONFIDENCE, len(others))
        sure = {DEVICE: self.device}
        for name, run in others.items():
            faster = log_ratio(self.device, run)
            if faster is not None and faster.interval(confidence).low > self.sampling_error + math.log(MARGIN):
                sure[name] = run
        return min(sure.items(), key=lambda named: named[1].seconds_per_sample)

    @property
    def alone(self) -> Series | None:
        """The workers alone, with everything real; the loader alone if these were not measured."""
        return self.workers.get(RAW) or self.drained.get(RAW)

    @property
    def loader_s_per_batch(self) -> float | None:
        """Loader's seconds per batch in a job that it limits; None if unknown."""
        if self.raw is None or not self.in_main_process:
            return None if self.raw is None else self.raw.seconds_per_batch
        return None if self.device is None else self.raw.seconds_per_batch - self.device.seconds_per_batch

    @property
    def common_rounds(self) -> int:
        """Rounds in which both ends of the ladder were measured."""
        return len(align((self.device, self.raw))[0]) if self.device is not None and self.raw is not None else 0

    @cached_property
    def faster_than_loader(self) -> float:
        """Log of the throughput of the job over that of its loader alone, if clearly more: that cannot last; or 0."""
        raw, loader = self.raw, self.drained.get(RAW)
        if raw is None or loader is None or (faster := log_ratio(loader, raw)) is None:
            return 0.0
        # One batch of a block may have been made before it began.
        one_batch = 1 / max(1.0, min(raw.batches.mean(), loader.batches.mean()))
        return faster.estimate if faster.exponentiated().low > max(MARGIN, 1 + one_batch) else 0.0

    def log_efficiency(self) -> Spread | None:
        """Return the logarithm of the job's throughput over its upper bound; None with fewer than two common rounds.

        Where the job was faster than its loader alone, the interval holds what the loader gives as well.
        """
        if self.raw is None or self.upper_bound is None:
            return None
        bound = self.upper_bound[1]
        found = log_ratio(bound, self.raw)
        if found is None:
            return None
        found = self._by_clocks(found, bound)
        error = self.collecting_error_s / self.raw.seconds_per_batch
        below = max(error, self.faster_than_loader)
        if found.below or found.above:  # by clocks
            return replace(found, below=found.below + below, above=found.above + error)
        if self.clocks is not None and self.raw.batches.sum() < self.clocks.wander:
            below = max(below, found.interval().low - math.log(self.clocks.least_efficiency(bound.seconds_per_batch)))
        return replace(found, below=below, above=error)

    def predicted_gain(self, stage: str) -> Interval | None:
        """Return the gain without a stage by the workers' clocks; None if they do not explain the job."""
        if self.clocks is None or self.raw is None or self.upper_bound is None:
            return None
        return self.clocks.gain(stage, self.raw.seconds_per_batch, self.upper_bound[1].seconds_per_batch)

    def most_gain(self, stage: str) -> float:
        """Return the job's largest gain without a stage by these clocks; infinite if they do not explain it."""
        if self.clocks is None or self.raw is None or self.upper_bound is None:
            return math.inf
        return self.clocks.most_gain(stage, self.raw.seconds_per_batch, self.upper_bound[1].seconds_per_batch)

    def _by_clocks(self, found: Spread, bound: Series) -> Spread:
        """Return the same for a job that waits for workers with slow batches, combined with their clocks if they agree.

        Each batch of a worker is a replicate there, and near the balance short blocks show where the queue was. The
        estimate weighs both by the inverse of their variances; the interval is that of the clocks. If the job was much
        slower than they predict, the interval reaches from one to the other.
        """
        clocks, step_s = self.clocks, bound.seconds_per_batch
        if clocks is None or not clocks.are_slow or clocks.batch.count <= found.rounds:
            return found
        if clocks.batch.mean_s < clocks.number * step_s:
            return found
        log, rounds = clocks.efficiency(step_s).mapped(math.log), clocks.batch.count
        half, seen = max((log.high - log.low) / 2, 1e-4), found.interval()
        if log.high < seen.low or seen.high < log.low:
            return found
        error = half / t_quantile(rounds - 1)
        if log.estimate - found.estimate > _MAX_CLOCKS_MISS:
            # What workers and step take from each other no clock of the workers shows: the truth is in between.
            middle, apart = (log.estimate + found.estimate) / 2, (log.estimate - found.estimate) / 2
            return Spread(middle, error, rounds, below=apart + found.standard_error, above=apart)
        weights = [1 / max(found.half_width(), 1e-4) ** 2, 1 / half**2]
        estimate = (weights[0] * found.estimate + weights[1] * log.estimate) / sum(weights)
        estimate = min(max(estimate, log.low), log.high)
        shift = estimate - (log.low + log.high) / 2
        return Spread(estimate, error, rounds, below=shift, above=-shift)


def read(measurement: Result) -> Readings:
    """Sum the blocks of a measurement by round."""
    in_main_process = measurement.pipeline.get("num_workers") == 0
    coupled = {e.name: blocks_of(e.coupled) for e in measurement.experiments}
    without = {w.stage: blocks_of(w.coupled) for w in measurement.without}
    drained = {e.name: blocks_of(e.drained) for e in measurement.experiments}
    error_s = 0.0
    if not in_main_process:
        handed_over = {name: blocks for name, blocks in coupled.items() if name not in (DEVICE, HOST)}
        left_out = {_WITHOUT + s: blocks for s, blocks in without.items() if s != HANDOFF}
        shared, error_s = share_out(handed_over | left_out)
        coupled |= {name: shared[name] for name in handed_over}
        without |= {s: shared[_WITHOUT + s] for s in without if s != HANDOFF}
        drained = dict(share_out(drained)[0])
    return Readings(
        coupled=_by_name(coupled.items()),
        drained=_by_name(drained.items()),
        workers=_by_name((e.name, blocks_of(e.workers)) for e in measurement.experiments),
        without=_by_name(without.items()),
        alone_without=_by_name((w.stage, blocks_of(w.workers)) for w in measurement.without),
        serving=_by_name((e.name, blocks_of(e.serving)) for e in measurement.experiments).get(RAW),
        receiving_s_per_batch=measurement.evidence.receiving_s_per_batch or 0.0,
        loop_s_per_batch=max(0.0, measurement.evidence.loop_s_per_batch or 0.0),
        step_s_per_batch=measurement.evidence.step_s_per_batch,
        sampling_error=_sampling_error(measurement.evidence.recorded_batches),
        collecting_error_s=error_s,
        in_main_process=in_main_process,
        clocks=Workers.of(measurement),
        spans=measurement.stages,
    )


def _sampling_error(recorded: RecordedBatches) -> float:
    """Return the sampling error of the recorded batches, by their sizes.

    A recorded batch takes the time of its size, however often it is replayed: no repetition shows that.
    """
    count, size_cv = recorded.count, recorded.size_cv
    if count is None or not size_cv or count < _MIN_RECORDED or size_cv < 0:
        return 0.0
    return min(t_quantile(count - 1) * size_cv / math.sqrt(count), _WIDEST_RECORDED_ERROR)


def experiments(measurement: Result, readings: Readings) -> tuple[Experiment, ...]:
    """Return the ladder with the throughput at each point."""
    return tuple(
        replace(
            e,
            coupled=_rate(readings.coupled.get(e.name), e.coupled),
            drained=_rate(readings.drained.get(e.name), e.drained),
            workers=_rate(readings.workers.get(e.name), e.workers),
            serving=_rate(readings.serving if e.name == RAW else None, e.serving),
        )
        for e in measurement.experiments
    )


def withouts(measurement: Result, readings: Readings) -> tuple[Without, ...]:
    """Return the throughput without each stage."""
    return tuple(
        replace(
            w,
            coupled=_rate(readings.without.get(w.stage), w.coupled),
            workers=_rate(readings.alone_without.get(w.stage), w.workers),
        )
        for w in measurement.without
    )


def _by_name(named: Iterable[tuple[str, tuple[Block, ...]]]) -> dict[str, Series]:
    """Return the series that have a block."""
    return {name: summed for name, blocks in named if len(summed := series(blocks))}


def _rate(summed: Series | None, before: Rate | None) -> Rate | None:
    """Return the throughput of a series.

    From a single round there is no interval: both bounds are then the estimate, and a warning of the result
    says so.
    """
    if summed is None:
        return None
    spread = jackknife(lambda time: -np.log(time), (summed,))
    estimate = summed.samples_per_s
    interval = Interval(estimate, estimate, estimate) if spread is None else spread.exponentiated()
    return Rate(
        samples_per_s=interval.estimate,
        low=interval.low,
        high=interval.high,
        seconds_per_batch=summed.seconds_per_batch,
        blocks=blocks_of(before),
    )
