"""How the batches of a job are made and waited for, and what a model of workers and queue says about changes to that.

A change that cannot gain anything by this model is not tried: where a batch takes a second, each try costs half a
minute. The model is a queue that workers fill and the loop empties. A loop that hardly waits finds batches in it, and
nothing that only makes them come sooner pays. A loop that waits for much of its time finds it empty: then neither a
quicker step nor a longer queue pays, and fewer workers pay only if they stand in each other's way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottleneck.analysis.advice.saturation import raw_usage
from bottleneck.analysis.edits.edits import MORE_WORKERS, USE_WORKERS
from bottleneck.results.format import duration, percent

if TYPE_CHECKING:
    from bottleneck.results.records import Result
    from bottleneck.tuner.lane import Lane

LITTLE = 0.05
"""Share of its time that a job waits for batches at most, where changes to its input are not worth a try."""
_MUCH = 0.15
"""Share from which on the queue is empty, and the loader decides."""
_EVEN_CV = 0.2
"""Variation of what batches take, up to which workers are never ahead in a queue of two batches each."""
_IDLE_SHARE = 0.2
"""Share of the cores that has to be idle, for workers and step not to take them from each other."""
_QUICKER = 0.5
"""Share of a worker's time that the main process may take for a batch: it hands nothing over, and has threads."""
_BUSY_SHARE = 0.5
"""Share of a core below which whoever loads mostly waits for something else."""


@dataclass(frozen=True)
class Supply:
    """What is known of a job so far; each None where that is not known."""

    waiting_share: float | None = None
    """Share of its time that the job waits for batches."""
    batch_s: float | None = None
    """What it takes for a batch, with the wait."""
    step_s: float | None = None
    """What a step takes once its batch is there."""
    worker_s: float | None = None
    """What a worker takes for a batch."""
    cv: float | None = None
    """Standard deviation of that over the mean."""
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
        """Why nothing that only makes batches come sooner pays, as the end of a sentence; None where it may."""
        return self._waiting if self.waiting_share is not None and self.waiting_share < LITTLE else None

    def why_not_step(self, *, on_cpu: bool) -> str | None:
        """Why nothing that only makes the step quicker pays; None where it may.

        Args:
            on_cpu: The step computes on the cores, which it may take from the workers.
        """
        if not self._waits_much or (on_cpu and not self._has_cores):
            return None
        return f"{self._waiting}: a quicker step would wait for longer"

    def why_not_queue(self) -> str | None:
        """Why no longer queue pays, nor one in another order; None where it may."""
        if not self._waits_much or self.cv is None or self.cv > _EVEN_CV:
            return None
        return (
            f"{self._waiting}, and batches take alike (cv {percent(self.cv)}): the queue is empty, however long it is"
        )

    def why_not_fewer(self, workers: int) -> str | None:
        """Why fewer workers, or none, do not pay; None where they may."""
        if not (self._waits_much and self._has_cores):
            return None
        if workers:
            return f"{self._waiting}, and cores are idle: fewer workers make fewer batches"
        if self.worker_s is None or self.step_s is None or self.batch_s is None:
            return None
        alone_s = self.step_s + _QUICKER * self.worker_s
        if alone_s <= self.batch_s:
            return None
        return f"without workers a batch takes {duration(alone_s)} at least, and {duration(self.batch_s)} now"

    @property
    def has_cores_to_keep_up(self) -> bool:
        """Whether all that is computed for a batch fits on the cores at the pace of the step alone."""
        if self.idle_share is None or not self.batch_s or not self.step_s:
            return False
        return (1 - self.idle_share) * self.batch_s / self.step_s <= 1


def supply_of(known: Lane, workers: int, before: Result, given: Lane, cores: float) -> Supply:
    """What is known of a variant, by its blocks and the diagnosis of the job.

    Args:
        known: The variant's lane.
        workers: Its workers.
        before: The diagnosis of the job as it was given.
        given: The lane of that job.
        cores: What the job has of the cores.
    """
    loaded, usage = before.evidence.loaded_batches, raw_usage(before.evidence)
    worker_s = loaded.seconds_each
    if known.waits and workers:
        worker_s = min(workers * known.step_s, worker_s if worker_s is not None else math.inf)
    idle_share = None
    if usage is not None and usage.cores_main is not None and usage.cores_workers is not None and known.step_s:
        # A batch takes as much of the cores in any variant.
        busy = (usage.cores_main + usage.cores_workers) * given.step_s / known.step_s
        idle_share = 1 - busy / max(cores, 1.0)
    step_s = known.bare_step_s or None
    return Supply(known.waiting_share, known.step_s, step_s, worker_s, loaded.cv, idle_share)


def loads_by_waiting(before: Result, given: Lane) -> bool:
    """Whether whoever loads for the job as it was given mostly waits for something else than a core."""
    usage = raw_usage(before.evidence, mode="drained")
    if usage is None and given.waits:  # workers that are ahead are idle too
        usage = raw_usage(before.evidence)
    if usage is None:
        return False
    workers = before.pipeline.get("num_workers") or 0
    cores = usage.cores_workers if workers else usage.cores_main
    return cores is not None and cores < _BUSY_SHARE * max(1, workers)


def workers_needed(lane: Lane, workers: int) -> int:
    """As many as would keep the step busy, if each is as fast as whoever makes the batches now; 0: not known."""
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
