"""Model of workers and their queue, which excludes changes that cannot gain anything.

If a batch takes a second, each try costs half a minute. The model is a prefetch queue that workers fill and the loop
empties. If the loop hardly waits, batches are in it, and making them sooner gains nothing. If the loop waits for much
of its time, it is empty: then neither a faster step nor a longer queue gains anything, and fewer workers gain only if
workers compete with each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottleneck.analysis.edits.edits import MORE_WORKERS, USE_WORKERS
from bottleneck.analysis.settings import raw_usage
from bottleneck.results.format import duration, percent

if TYPE_CHECKING:
    from bottleneck.results.records import Result
    from bottleneck.tuner.lane import Lane

LITTLE = 0.05
"""Share of its time that a job waits for batches, below which changes to its input are not worth trying."""
_MUCH = 0.15
"""Share above which the queue is empty, and the loader is the bottleneck."""
_EVEN_CV = 0.2
"""Coefficient of variation of batches, up to which workers never get ahead in a queue of two batches each."""
_IDLE_SHARE = 0.2
"""Minimum share of idle cores for workers and step not to compete for them."""
_QUICKER = 0.5
"""Time per batch of the main process over that of a worker, at best: it hands nothing over, and has threads."""
_BUSY_SHARE = 0.5
"""Share of a core below which loading mostly waits for something else."""


@dataclass(frozen=True)
class Supply:
    """Facts known about the supply of batches; each is None if unknown."""

    waiting_share: float | None = None
    """Share of its time in which the job waits for batches."""
    batch_s: float | None = None
    """Seconds per batch, the wait included."""
    step_s: float | None = None
    """Seconds per step without its wait for the batch."""
    worker_s: float | None = None
    """Seconds in which a worker makes a batch."""
    cv: float | None = None
    """Coefficient of variation of the time in which a worker makes a batch."""
    idle_share: float | None = None
    """Share of the cores that neither workers nor the main process use."""

    @property
    def _waits_much(self) -> bool:
        return self.waiting_share is not None and self.waiting_share >= _MUCH

    @property
    def _has_cores(self) -> bool:
        return self.idle_share is not None and self.idle_share >= _IDLE_SHARE

    @property
    def _waiting(self) -> str:
        return f"the job waits for its batches in {percent(self.waiting_share or 0.0)} of its time"

    def why_not_input(self) -> str | None:
        """Return why making batches sooner gains nothing, as the end of a sentence; None if it may gain."""
        return self._waiting if self.waiting_share is not None and self.waiting_share < LITTLE else None

    def why_not_step(self, *, on_cpu: bool) -> str | None:
        """Return why a faster step alone gains nothing; None if it may gain.

        Args:
            on_cpu: True if the step computes on the cores, which it may take from the workers.
        """
        if not self._waits_much or (on_cpu and not self._has_cores):
            return None
        return f"{self._waiting}: a faster step would only wait longer"

    def why_not_queue(self) -> str | None:
        """Return why a longer or reordered queue gains nothing; None if it may gain."""
        if not self._waits_much or self.cv is None or self.cv > _EVEN_CV:
            return None
        return f"{self._waiting}, and batches take equally long (cv {percent(self.cv)}): a queue of any length is empty"

    def why_not_fewer(self, workers: int) -> str | None:
        """Return why fewer workers, or none, gain nothing; None if they may gain."""
        if not (self._waits_much and self._has_cores):
            return None
        if workers:
            return f"{self._waiting}, and cores are idle: fewer workers make fewer batches"
        if self.worker_s is None or self.step_s is None or self.batch_s is None:
            return None
        alone_s = self.step_s + _QUICKER * self.worker_s
        if alone_s <= self.batch_s:
            return None
        return f"without workers a batch takes at least {duration(alone_s)}, and now {duration(self.batch_s)}"

    @property
    def has_cores_to_keep_up(self) -> bool:
        """True if all computation for a batch fits on the cores at the pace of the step alone."""
        if self.idle_share is None or not self.batch_s or not self.step_s:
            return False
        return (1 - self.idle_share) * self.batch_s / self.step_s <= 1


def supply_of(known: Lane, workers: int, before: Result, given: Lane, cores: float) -> Supply:
    """Return the known facts about a variant, from its blocks and the diagnosis of the job.

    Args:
        known: The variant's lane.
        workers: Its number of workers.
        before: Diagnosis of the original job.
        given: The original job's lane.
        cores: Cores available to the job.
    """
    loaded, usage = before.evidence.loaded_batches, raw_usage(before.evidence)
    worker_s = loaded.seconds_each
    if known.waits and workers:
        worker_s = min(workers * known.step_s, worker_s if worker_s is not None else math.inf)
    idle_share = None
    if usage is not None and usage.cores_main is not None and usage.cores_workers is not None and known.step_s:
        # A batch takes the same time on the cores in any variant.
        busy = (usage.cores_main + usage.cores_workers) * given.step_s / known.step_s
        idle_share = 1 - busy / max(cores, 1.0)
    step_s = known.bare_step_s or None
    return Supply(known.waiting_share, known.step_s, step_s, worker_s, loaded.cv, idle_share)


def loads_by_waiting(before: Result, given: Lane) -> bool:
    """Return True if loading in the original job mostly waits for something other than a core."""
    usage = raw_usage(before.evidence, mode="drained")
    if usage is None and given.waits:  # workers that are ahead would be idle too
        usage = raw_usage(before.evidence)
    if usage is None:
        return False
    workers = before.pipeline.get("num_workers") or 0
    cores = usage.cores_workers if workers else usage.cores_main
    return cores is not None and cores < _BUSY_SHARE * max(1, workers)


def workers_needed(lane: Lane, workers: int) -> int:
    """Return the number of workers that would keep the step busy at the present speed of one; 0 if unknown."""
    if not (lane.waits and lane.bare_step_s):
        return 0
    made_s = workers * lane.step_s or lane.step_s - lane.bare_step_s
    return math.ceil(made_s / lane.bare_step_s)


def workers_advised(before: Result) -> tuple[int, int | None]:
    """As many workers as a diagnosis advises, 0 for none, and the threads of the train step beside them, if fewer."""
    for item in before.advice:
        proposed = item.evidence.get("proposed") or {}
        workers = item.evidence.get("workers") or proposed.get("num_workers")
        if item.id in (MORE_WORKERS, USE_WORKERS) and workers:
            return int(workers), item.evidence.get("torch_threads")
    return 0, None
