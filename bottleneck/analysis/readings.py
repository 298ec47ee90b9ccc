"""A measurement, summed by round once: what all of the analysis reads from."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from statistics import NormalDist

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
from bottleneck.results.evidence import RecordedBatches
from bottleneck.results.names import COLD, DEVICE, HANDOFF, HOST, RAW
from bottleneck.results.records import Block, Experiment, Interval, Rate, Result, Stage, Without, blocks_of

# --- full garbage collections -------------------------------------------------------------------------------


_WORTH_SHARING_OUT = 0.02
"""Share of the time of all blocks; below it the scatter of the rounds has them in it."""
_SD_OF_COUNT = 0.5
"""Standard deviation of the collections in a block that begins anywhere between two of them, at most."""


def share_out(blocks: Mapping[str, tuple[Block, ...]]) -> tuple[Mapping[str, tuple[Block, ...]], float]:
    """Share the collections of some experiments out over all of their blocks, by batches.

    Returns:
        The blocks, and half the width of the 95 % interval of what is shared out [s per batch].
    """
    noted = [block for own in blocks.values() for block in own if block.collecting_s is not None]
    collecting = [block.collecting_s for block in noted if block.collecting_s]
    batches = sum(block.batches for block in noted)
    if not batches or sum(collecting) < _WORTH_SHARING_OUT * sum(block.seconds for block in noted):
        return blocks, 0.0
    mean_s = sum(collecting) / batches
    # At least one in each block that has any: what a single one takes is that at most.
    one_s = sum(collecting) / len(collecting)
    error_s = 2 * _SD_OF_COUNT * math.sqrt(len(noted)) * one_s / batches
    return {name: tuple(_with_mean(block, mean_s) for block in own) for name, own in blocks.items()}, error_s


def _with_mean(block: Block, mean_s: float) -> Block:
    if block.collecting_s is None:
        return block
    return replace(block, seconds=max(0.0, block.seconds - block.collecting_s) + mean_s * block.batches)


# --- workers in turn ----------------------------------------------------------------------------------------


_EXCURSIONS = 10
"""Of the queue between full and empty, from which on blocks show by themselves what a job gets in the long run."""
_SIMULATED = 12_000
"""Batches: of fewer, one of many workers had the slow ones by chance."""


@dataclass(frozen=True)
class Turns:
    """Workers that make batches in turn, each in a time of its own, and a queue between them and the step.

    Where both are about as fast, the queue wanders for hundreds of batches, and blocks are shorter than that.
    """

    workers: int
    ahead: int
    """Batches that are asked for ahead of the one that is trained on."""
    worker_s: float
    """What a worker may take for a batch on average, by the upper end of its 95 % interval."""
    cv: float
    """Standard deviation over the mean."""

    @staticmethod
    def of(measurement: Result) -> Turns | None:
        """The workers of a measurement; None where the times of their batches are not known."""
        loaded, pipeline = measurement.evidence.loaded_batches, measurement.pipeline
        workers = int(pipeline.get("num_workers") or 0)
        if not (workers and loaded.count and loaded.seconds_each and loaded.cv is not None):
            return None
        error = t_quantile(loaded.count - 1) * loaded.cv / math.sqrt(loaded.count)
        ahead = workers * int(pipeline.get("prefetch_factor") or 2)
        return Turns(workers, ahead, loaded.seconds_each * (1 + error), loaded.cv)

    @property
    def wander(self) -> float:
        """Batches in which the queue of a balanced job goes from full to empty some times."""
        return _EXCURSIONS * (self.ahead / self.cv) ** 2 if self.cv else math.inf

    @lru_cache(maxsize=4)  # noqa: B019 - a few floats
    def least_efficiency(self, step_s: float) -> float:
        """What a job gets of its step in the long run, simulated with batches of log-normal times."""
        variance = math.log1p(self.cv**2)
        logs = NormalDist(math.log(self.worker_s) - variance / 2, math.sqrt(variance) or 1e-9)
        times_s = [math.exp(logs.inv_cdf((number + 0.5) / _SIMULATED)) for number in range(_SIMULATED)]
        random.Random(0).shuffle(times_s)
        asked_s, free_s, now_s = deque([0.0] * self.ahead), [0.0] * self.workers, -times_s[0]
        for number, worker_s in enumerate(times_s):
            worker = number % self.workers
            free_s[worker] = max(free_s[worker], asked_s.popleft()) + worker_s
            now_s = max(now_s, free_s[worker])
            asked_s.append(now_s)
            now_s += step_s
        return _SIMULATED * step_s / now_s


# --- readings -----------------------------------------------------------------------------------------------


_WITHOUT = "without "
_FEWEST_RECORDED = 2
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
    """The workers alone, or the loader alone where there are none, without a stage."""
    serving: Series | None
    """All of the loader alone, at the price of serving that each experiment without a stage pays."""
    receiving_s_per_batch: float
    """What the main process takes to receive a batch in which there is nothing; 0 where it is unknown."""
    loop_s_per_batch: float
    """What the loop of blocks takes besides the train step; 0 where a device runs asynchronously."""
    step_s_per_batch: float | None
    """What the train step takes within the job; None where a device runs asynchronously."""
    sampling_error: float
    """Relative sampling error of the recorded batches: half the width of a 95 % interval; 0 where all are equal."""
    collecting_error_s: float
    """How well is known what garbage collection takes of a batch with the train step: half an interval of 95 %."""
    in_main_process: bool
    """The loader runs in the process that trains."""
    turns: Turns | None
    """The workers, by the times of the batches that they made; None where these are not known."""
    spans: tuple[Stage, ...]

    @property
    def raw(self) -> Series | None:
        """The job as it is."""
        return self.coupled.get(RAW)

    @property
    def cold(self) -> Series | None:
        """The job with its files on the disk."""
        return self.coupled.get(COLD)

    @property
    def device(self) -> Series | None:
        """The job with its input on the device already."""
        return self.coupled.get(DEVICE)

    @cached_property
    def upper_bound(self) -> tuple[str, Series] | None:
        """What the job could get: `device`, or a run of the train step with less of the loader that is surely faster.

        A step that runs alone is slower than the same step next to busy workers where idle cores sleep deeply, and a
        device at rest clocks down. Whatever the step got from a job with less to do, it can do.
        """
        if self.device is None:
            return None
        others = {name: run for name, run in self.coupled.items() if name not in (DEVICE, RAW, COLD)}
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
        """The workers alone, with everything real; the loader alone where these are not measured."""
        return self.workers.get(RAW) or self.drained.get(RAW)

    @property
    def loader_s_per_batch(self) -> float | None:
        """What the loader takes for a batch of a job that it holds; None where that is not known."""
        if self.raw is None or not self.in_main_process:
            return None if self.raw is None else self.raw.seconds_per_batch
        return None if self.device is None else self.raw.seconds_per_batch - self.device.seconds_per_batch

    @property
    def common_rounds(self) -> int:
        """Rounds in which both ends of the ladder were measured."""
        return len(align((self.device, self.raw))[0]) if self.device is not None and self.raw is not None else 0

    @cached_property
    def faster_than_loader(self) -> float:
        """Log of the throughput of the job over that of its loader alone, if surely more: that cannot last; or 0."""
        raw, loader = self.raw, self.drained.get(RAW)
        if raw is None or loader is None or (faster := log_ratio(loader, raw)) is None:
            return 0.0
        # One batch of a block may have been made before it began.
        one_batch = 1 / max(1.0, min(raw.batches.mean(), loader.batches.mean()))
        return faster.estimate if faster.exponentiated().low > max(MARGIN, 1 + one_batch) else 0.0

    def log_efficiency(self) -> Spread | None:
        """Logarithm of the job's throughput over its upper bound; None with fewer than two common rounds.

        Where the job was faster than its loader alone, the interval holds what the loader gives as well.
        """
        if self.raw is None or self.upper_bound is None:
            return None
        bound = self.upper_bound[1]
        found = log_ratio(bound, self.raw)
        if found is None:
            return None
        error = self.collecting_error_s / self.raw.seconds_per_batch
        below = max(error, self.faster_than_loader)
        if self.turns is not None and self.raw.batches.sum() < self.turns.wander:
            below = max(below, found.interval().low - math.log(self.turns.least_efficiency(bound.seconds_per_batch)))
        return replace(found, below=below, above=error)


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
        turns=Turns.of(measurement),
        spans=measurement.stages,
    )


def _sampling_error(recorded: RecordedBatches) -> float:
    """The sampling error of the recorded batches, by their sizes.

    A recorded batch takes the time that goes with its own size, however often it is served: no repetition shows that.
    """
    count, size_cv = recorded.count, recorded.size_cv
    if count is None or not size_cv or count < _FEWEST_RECORDED or size_cv < 0:
        return 0.0
    return min(t_quantile(count - 1) * size_cv / math.sqrt(count), _WIDEST_RECORDED_ERROR)


def experiments(measurement: Result, readings: Readings) -> tuple[Experiment, ...]:
    """The ladder with the throughput at each point."""
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
    """The throughput without each stage."""
    return tuple(
        replace(
            w,
            coupled=_rate(readings.without.get(w.stage), w.coupled),
            workers=_rate(readings.alone_without.get(w.stage), w.workers),
        )
        for w in measurement.without
    )


def _by_name(named: Iterable[tuple[str, tuple[Block, ...]]]) -> dict[str, Series]:
    """The series that have a block."""
    return {name: summed for name, blocks in named if len(summed := series(blocks))}


def _rate(summed: Series | None, before: Rate | None) -> Rate | None:
    """The throughput of a series.

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
