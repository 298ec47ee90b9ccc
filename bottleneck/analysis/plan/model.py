"""Speed of a job with given workers and cores, by the costs of a sample.

A sample takes CPU time and waiting of a worker, CPU time of the main process, and time of the device. Workers share the
cores that the main process leaves them, and the device gets batches in order through the queue of the DataLoader, whose
scatter keeps it below the smaller of the two speeds if they are close.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass, replace

_TO_SPARE = 1.1
"""Workers over those that are just enough: each is late at times."""
_NEVER_MEET = 3.0
"""Ratio of the speeds of loader and device above which scatter changes nothing."""
_MANY = 1_000
"""Workers above which only their number counts."""


@dataclass(frozen=True)
class Job:
    """Costs of a sample [s], and the queueing of batches.

    Attributes:
        cpu_s: CPU time of the workers.
        wait_s: Time of a worker in which it could use no core.
        step_s: Time of the device.
        step_cpu_s: CPU time of the main process for the train step.
        hand_cpu_s: CPU time of the main process for all else: batches are received, pinned and copied.
        hand_s: Time of the loop besides the step when the workers' batches are ready.
        batch: Samples in one.
        prefetch: Batches that a worker may be ahead.
        cv: Standard deviation of a worker's time for a batch over its mean.
        device_share: The part of the device's time in which that computes; in the rest it waits for the main process.
    """

    cpu_s: float
    wait_s: float
    step_s: float
    step_cpu_s: float
    hand_cpu_s: float
    hand_s: float
    batch: float
    prefetch: float
    cv: float
    device_share: float = 1.0

    @property
    def fed_per_s(self) -> float:
        """Samples per second with a batch ready whenever the loop asks for it."""
        return 1 / (self.step_s + self.hand_s)

    @property
    def main_cpu_s(self) -> float:
        """CPU time of the main process."""
        return self.step_cpu_s + self.hand_cpu_s

    def on(self, speed: float) -> Job:
        """Return the job on a faster device: its step keeps as many cores busy for a shorter time.

        If the device's part of a step is known, the work of the main process is unchanged.
        """
        step_s = self.step_s * (1 - self.device_share + self.device_share / speed)
        cpu_s = self.step_cpu_s / speed if self.device_share == 1 else min(self.step_cpu_s, step_s)
        return replace(self, step_s=step_s, step_cpu_s=cpu_s)

    def workers_for(self, cores: float) -> int:
        """Return the workers that use so many cores, or keep the device busy, with some to spare."""
        rate = min(self.fed_per_s, cores / (self.cpu_s + self.main_cpu_s))
        return max(1, math.ceil(_TO_SPARE * rate * (self.cpu_s + self.wait_s)))


def predict(job: Job, workers: int, cores: float, limit: float = math.inf) -> float:
    """Return the samples per second of a job whose workers, one at least, share cores with its main process.

    Args:
        job: Costs of a sample.
        workers: Worker processes.
        cores: Cores; need not be whole.
        limit: Supply of the storage [samples/s].
    """
    low, high = 0.0, job.fed_per_s
    for _ in range(40):  # the more the main process trains, the less is left for the workers
        rate = (low + high) / 2
        keeps_up = supply(job, workers, cores - rate * job.main_cpu_s) >= rate
        low, high = (rate, high) if keeps_up else (low, rate)
    # A batch that is taken lets its worker begin the next one: what the main process does then, it does next to that
    # worker and to those that compute anyway, each with its share of the cores.
    crowd = max(1.0, (1 + min(workers, 1 + low * job.cpu_s)) / cores)
    crowded = replace(job, hand_s=job.hand_s + (crowd - 1) * job.hand_cpu_s)
    return min(limit, _through_queue(crowded, workers, supply(job, workers, cores - low * job.main_cpu_s)))


def supply(job: Job, workers: int, cores: float) -> float:
    """Return the samples per second of the workers alone, each of which waits and computes in turn.

    A closed network of a delay and a station whose cores those that compute share equally. How many compute at once
    does not depend on how the times are distributed (F. Baskett, K. M. Chandy, R. R. Muntz and F. G. Palacios, 'Open,
    Closed, and Mixed Networks of Queues with Different Classes of Customers', J. ACM 22, 1975).
    """
    if cores <= 0:
        return 0.0
    if job.wait_s <= 1e-9 * job.cpu_s or workers > _MANY:
        return min(workers / (job.cpu_s + job.wait_s), cores / job.cpu_s)
    weight, total, running = 1.0, 1.0, 0.0
    for computing in range(1, workers + 1):
        at_once = min(computing, cores)
        weight *= (workers - computing + 1) / job.wait_s * job.cpu_s / at_once
        total, running = total + weight, running + weight * at_once
        if total > 1e200:
            weight, total, running = weight / total, 1.0, running / total
    return running / total / job.cpu_s


def _through_queue(job: Job, workers: int, loader: float) -> float:
    """Return the samples per second through the DataLoader: worker k of n makes each n-th batch, taken in order.

    A worker begins a batch when it is done with its last one, and the loop has taken the one `prefetch` before.
    """
    if job.cv <= 0 or workers > _MANY or not 1 / _NEVER_MEET < loader / job.fed_per_s < _NEVER_MEET:
        return min(loader, job.fed_per_s)
    ahead = workers * max(1, min(_MANY, round(job.prefetch)))
    batches, draw, sigma = max(800, 20 * ahead), random.Random(0), math.sqrt(math.log1p(job.cv**2))
    times = [draw.lognormvariate(0.0, sigma) for _ in range(batches)]
    scale, step_s = workers * job.batch / loader / statistics.fmean(times), job.batch / job.fed_per_s
    made, taken = [0.0] * batches, [0.0] * batches
    for at, time in enumerate(times):
        begun_s = max(made[at - workers] if at >= workers else 0.0, taken[at - ahead] if at >= ahead else 0.0)
        made[at] = begun_s + time * scale
        taken[at] = max(made[at], taken[at - 1] + step_s if at else 0.0)
    first = batches // 4
    return min(loader, job.fed_per_s, (batches - 1 - first) * job.batch / (taken[-1] - taken[first]))
