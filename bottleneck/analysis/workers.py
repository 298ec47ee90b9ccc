"""A model of the workers and their queue: the efficiency in the long run, and the gain without a stage.

Workers make batches in turn, each in its own time; the prefetch queue lies between them and the train step. If both are
about as fast, the queue wanders for hundreds of batches, and blocks are shorter than that. The model is simulated with
log-normal times of the mean and scatter that the workers' own clocks show.

With batches of seconds, these clocks know hundreds of samples before an experiment has a single block. So they are the
first to say which stage limits the workers and what the job would gain without it.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist

from bottleneck.analysis.statistics import t_quantile
from bottleneck.results.evidence import ClockedBatches
from bottleneck.results.records import Interval, Result

EXCURSIONS = 10
"""Excursions of the queue between full and empty above which blocks alone show the long run."""
SIMULATED_BATCHES = 12_000
"""Simulated batches; with fewer, one of many workers would get the slow ones by chance."""
MODEL_ERROR = 0.03
"""Relative error of a time by the workers' clocks that no repetition shows: the stages' run without the train step."""
SLOW_BATCH_S = 0.4
"""Time of a worker for a batch above which a block has a turn of the workers, or little more."""
QUEUE_ERROR = 0.01
"""Relative error of a time of whole batches in the job: a queue passes them on as the model does, but for so much."""
SINGLE_ERROR = 0.1
"""Relative error of a batch that was timed alone: it is a sum over its samples."""
MIN_EXPLAINED, MAX_EXPLAINED = 0.75, 1.25
"""The sum of the stages' clocks over a worker's time for a batch, within which the clocks explain it."""
MAX_MODEL_MISS = 0.1
"""By how much the model may miss the time of a batch in the job: beyond, something else limits it."""


@dataclass(frozen=True)
class Timed:
    """A mean of several times.

    Attributes:
        mean_s: The mean.
        cv: Standard deviation over the mean.
        count: The number of times.
    """

    mean_s: float
    cv: float
    count: int

    @property
    def error_s(self) -> float:
        """Half the width of the 95 % interval of the mean; a guess if there is a single time."""
        if self.count < 2:
            return SINGLE_ERROR * self.mean_s
        return min(1.0, t_quantile(self.count - 1) * self.cv / math.sqrt(self.count)) * self.mean_s


@dataclass(frozen=True)
class Workers:
    """The workers of a job, as their own clocks show them."""

    number: int
    ahead: int
    """Batches that are asked for ahead of the one that is trained on."""
    batch: Timed
    """Time of a worker for a batch in the unmodified job."""
    stages: Mapping[str, Timed] = field(default_factory=dict, compare=False)
    """Time of each stage for such a batch, observed without the train step."""

    @staticmethod
    def of(measurement: Result) -> Workers | None:
        """Return the workers of a measurement; None if the times of their batches are unknown."""
        loaded, pipeline = measurement.evidence.loaded_batches, measurement.pipeline
        workers = int(pipeline.get("num_workers") or 0)
        if not (workers and loaded.count and loaded.seconds_each and loaded.cv is not None):
            return None
        ahead = workers * int(pipeline.get("prefetch_factor") or 2)
        batch = Timed(loaded.seconds_each, loaded.cv, loaded.count)
        return Workers(workers, ahead, batch, _stages(measurement.evidence.clocked_batches))

    @property
    def are_slow(self) -> bool:
        """True if they take so long for a batch that blocks are few, and their clocks are more precise."""
        return self.batch.mean_s >= SLOW_BATCH_S

    @property
    def wander(self) -> float:
        """Batches in which the queue of a balanced job goes from full to empty several times."""
        return EXCURSIONS * (self.ahead / self.batch.cv) ** 2 if self.batch.cv else math.inf

    def least_efficiency(self, step_s: float) -> float:
        """Return the efficiency in the long run, with the workers' mean at the upper end of its interval."""
        return simulate(self.number, self.ahead, self.batch.mean_s + self.batch.error_s, self.batch.cv, step_s)

    def efficiency(self, step_s: float) -> Interval:
        """Return the efficiency that the model predicts for a train step [s]."""
        mean_s, error_s = self.batch.mean_s, math.hypot(self.batch.error_s, QUEUE_ERROR * self.batch.mean_s)
        times_s = (mean_s, mean_s + error_s, mean_s - error_s)
        return Interval(*(self._efficiency(batch_s, step_s) for batch_s in times_s))

    def _efficiency(self, batch_s: float, step_s: float) -> float:
        return simulate(self.number, self.ahead, max(batch_s, 1e-9), self.batch.cv, step_s)

    # --- stages --------------------------------------------------------------------------------------------

    @property
    def explained(self) -> bool:
        """True if the clocks of the stages add up to the time of a batch in the job."""
        whole_s = sum(timed.mean_s for timed in self.stages.values())
        return MIN_EXPLAINED * self.batch.mean_s <= whole_s <= MAX_EXPLAINED * self.batch.mean_s

    def share(self, stage: str) -> float:
        """Return the part of a worker's time that a stage takes; 0 for one that has no clock there."""
        whole_s = sum(timed.mean_s for timed in self.stages.values())
        found = self.stages.get(stage)
        return found.mean_s / whole_s if found is not None and whole_s else 0.0

    def cost_s(self, stage: str) -> Interval | None:
        """Return the time of a stage per batch, over all workers [s]; None if the clocks explain too little."""
        timed = self.stages.get(stage)
        if timed is None or not self.explained:
            return None
        scale = self.batch.mean_s / sum(each.mean_s for each in self.stages.values()) / self.number
        error_s = scale * math.hypot(timed.error_s, MODEL_ERROR * timed.mean_s)
        return Interval(scale * timed.mean_s, scale * timed.mean_s - error_s, scale * timed.mean_s + error_s)

    def clearly_longer(self, more: str, less: str) -> bool:
        """Return True if one stage clearly takes a worker longer than another, by the interval of the difference."""
        one, other = self.stages.get(more), self.stages.get(less)
        if one is None or other is None:
            return False
        return one.mean_s - other.mean_s > math.hypot(one.error_s, other.error_s, MODEL_ERROR * one.mean_s)

    def limits(self, raw_s: float, step_s: float) -> bool:
        """Return True if the workers alone explain the time of a batch in the job [s]."""
        modelled_s = step_s / self._efficiency(self.batch.mean_s, step_s)
        return self.explained and abs(modelled_s / raw_s - 1) <= MAX_MODEL_MISS

    def gain(self, stage: str, raw_s: float, step_s: float) -> Interval | None:
        """Return the gain that the model predicts without a stage.

        Args:
            stage: A stage that has a clock in the workers.
            raw_s: Time of a batch in the job.
            step_s: Time of its train step alone.

        Returns:
            None if the clocks do not explain the job.
        """
        timed = self.stages.get(stage)
        if timed is None or not self.limits(raw_s, step_s):
            return None
        mean_s, part = self.batch.mean_s, self.share(stage)
        error = self.batch.error_s / mean_s
        # The stage's part of a batch, and what the clocks are off by: an error of the rest alone.
        off = math.hypot(part * timed.error_s / timed.mean_s, MODEL_ERROR)

        def log_gain(batch_s: float, rest: float) -> float:
            return math.log(self._efficiency(rest * batch_s, step_s) / self._efficiency(batch_s, step_s))

        by_batch = log_gain(mean_s * (1 + error), 1 - part) - log_gain(mean_s * (1 - error), 1 - part)
        by_part = log_gain(mean_s, max(1 - part - off, 1e-6)) - log_gain(mean_s, 1 - part + off)
        found, half = log_gain(mean_s, 1 - part), math.hypot(by_batch / 2, by_part / 2)
        return Interval(*(max(1.0, math.exp(each)) for each in (found, found - half, found + half)))

    def most_gain(self, stage: str, raw_s: float, step_s: float) -> float:
        """Return the most that a job may gain without a stage, with or without a clock in the workers."""
        predicted = self.gain(stage, raw_s, step_s)
        if predicted is not None:
            return predicted.high
        if not self.limits(raw_s, step_s):
            return math.inf
        # What is left of a worker's time may all be this stage, such as writing into shared memory.
        rest_s = max(0.0, self.batch.mean_s - sum(timed.mean_s for timed in self.stages.values()))
        quickest_s = self.batch.mean_s - rest_s - math.hypot(self.batch.error_s, MODEL_ERROR * self.batch.mean_s)
        return max(1.0, raw_s / step_s * self._efficiency(quickest_s, step_s))


def _stages(clocked: ClockedBatches) -> dict[str, Timed]:
    return {
        clock.stage: Timed(clock.seconds_each, clock.cv or 0.0, clocked.count or 1)
        for clock in clocked.stages
        if clock.stage and clock.seconds_each
    }


@lru_cache(maxsize=256)
def simulate(workers: int, ahead: int, worker_s: float, cv: float, step_s: float) -> float:
    """Return the efficiency of a job in the long run.

    Args:
        workers: That make batches in turn.
        ahead: Batches that are asked for ahead of the one that is trained on.
        worker_s: Mean time of a worker for a batch [s].
        cv: Its standard deviation over the mean.
        step_s: Time of the train step [s].
    """
    variance = math.log1p(cv**2)
    logs = NormalDist(math.log(worker_s) - variance / 2, math.sqrt(variance) or 1e-9)
    times_s = [math.exp(logs.inv_cdf((number + 0.5) / SIMULATED_BATCHES)) for number in range(SIMULATED_BATCHES)]
    random.Random(0).shuffle(times_s)
    asked_s, free_s, now_s = deque([0.0] * ahead), [0.0] * workers, -times_s[0]
    for number, batch_s in enumerate(times_s):
        worker = number % workers
        free_s[worker] = max(free_s[worker], asked_s.popleft()) + batch_s
        now_s = max(now_s, free_s[worker])
        asked_s.append(now_s)
        now_s += step_s
    return SIMULATED_BATCHES * step_s / now_s
