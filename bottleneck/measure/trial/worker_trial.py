"""What workers would gain in a job that has none: its own steps, fed by real workers that take as long as its loader.

Workers cost something themselves. Each batch has to be handed over, and on a CPU that trains they take cores from the
step, whose threads then wait for each other: by far more than the cores that are gone. No sum of times shows how much,
so it is tried. The workers of the trial have nothing of the user's dataset: they compute for as long as loading took
when it was timed, and hand over copies of recorded batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.loader import modes, trees
from bottleneck.measure.batch_cache import CachedBatch
from bottleneck.measure.bench import Bench
from bottleneck.measure.limits import usable_cores
from bottleneck.measure.machine import cpu_seconds
from bottleneck.measure.trial.emulated_workers import Work, emulated_workers
from bottleneck.results.evidence import Handoff, WayTried, WorkersTried

BUDGET_SHARE = 0.1
_LEAST_S = 1.0
"""Time below which a trial shows nothing."""
_LOOK_S, _FEWEST_BATCHES = 0.15, 4
"""How long loading and handing over are timed each, and at least how many batches."""
_BLOCK_S = 0.12
_MOST_PAIRS = 5
_WORTH_TRYING = 0.1
"""Share of a step that loading takes, below which workers could gain next to nothing."""
_FILLING = 4.0
"""Times the loading of a batch until workers whose turn it is not have filled their queues and rest."""
_HOPELESS = 1.3
"""Times the job without workers from which on a first pair settles it."""
_MOST_WORKERS = 4
"""A first choice; once the job has workers, its own diagnosis shows whether more would help."""
_SPARE_SUPPLY = 1.1
_KEPT_BATCHES = 4


@dataclass(frozen=True)
class _Way:
    """One way to load: so many workers, or none, beside so many threads of the train step."""

    workers: int
    threads: int


@dataclass
class _Trial:
    """A job that has no workers, with which ways to load are tried."""

    loader: DataLoader[Any]
    bench: Bench
    batches: list[Any]
    pinned: bool
    limit_s: float
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.bench.clock()

    @property
    def left_s(self) -> float:
        return self.limit_s - (self.bench.clock() - self.began_s)

    def fed(self, workers: int, work: Work) -> AbstractContextManager[Any]:
        """Start workers that do so much for each batch; yields PyTorch's own iterator."""
        context = self.loader.multiprocessing_context
        return emulated_workers(self.batches, work, workers, pinned=self.pinned, context=context)

    # --- single times --------------------------------------------------------------------------------------

    def loading(self) -> Work:
        """Time the loader as it is, in this process."""
        self.bench.loader.switch(modes.ALL)
        self.bench.loader.next_batch()
        cpu_s = time.process_time()
        wall_s, batches = self._run(lambda: self.bench.loader.next_batch()[0], None, _LOOK_S)
        return Work(wall_s, (time.process_time() - cpu_s) / batches)

    def handoff(self) -> Handoff:
        """Time batches that come from a worker which only has to hand them over."""
        with self.fed(1, Work()) as iterator:
            (worker,) = iterator._workers
            for _ in range(_FEWEST_BATCHES):
                next(iterator)
            main_s, worker_s = time.process_time(), cpu_seconds(worker.pid)
            wall_s, batches = self._run(lambda: _touch(next(iterator)), None, _LOOK_S)
            main_s, spent_s = time.process_time() - main_s, cpu_seconds(worker.pid)
        return Handoff(
            s_per_batch=wall_s,
            main_cpu_s_per_batch=main_s / batches,
            worker_cpu_s_per_batch=None if worker_s is None or spent_s is None else (spent_s - worker_s) / batches,
        )

    def one_step(self) -> float:
        """Return the time of a single batch: a slow job has time for no more."""
        began_s = self.bench.clock()
        self.bench.step(self.bench.transfer(self.bench.loader.next_batch()[0]))
        self.bench.synchronize()
        return self.bench.clock() - began_s

    def steps(self, take: Callable[[], Any], seconds: float) -> float:
        """Return the time of a batch of the job, fed by what `take` gives."""
        return self._run(take, lambda batch: self.bench.step(self.bench.transfer(batch)), seconds)[0]

    def _run(self, take: Callable[[], Any], step: Callable[[Any], Any] | None, seconds: float) -> tuple[float, int]:
        clock = self.bench.clock
        self.bench.synchronize()
        began_s, batches = clock(), 0
        while batches < _FEWEST_BATCHES or clock() - began_s < seconds:
            batch = take()
            if step is not None:
                step(batch)
            batches += 1
        self.bench.synchronize()
        return (clock() - began_s) / batches, batches

    # --- pairs ---------------------------------------------------------------------------------------------

    def pairs(self, ways: Sequence[_Way], work: Work) -> tuple[WayTried, ...]:
        """Measure the job as it is and in each way, in turns."""
        found: dict[_Way, list[tuple[float, float]]] = {way: [] for way in ways}
        with ExitStack() as opened:
            opened.callback(torch.set_num_threads, torch.get_num_threads())
            counts = dict.fromkeys(way.workers for way in ways if way.workers)
            feeds = {workers: opened.enter_context(self.fed(workers, work)) for workers in counts}
            present, filling_s = list(ways), _FILLING * work.wall_s
            for number in range(_MOST_PAIRS):
                began_s = self.bench.clock()
                alone_s = self._settled(lambda: self.bench.loader.next_batch()[0], 0, filling_s)
                for way in present:
                    found[way].append((alone_s, self._fed_steps(way, feeds.get(way.workers), filling_s)))
                present = [way for way in present if found[way][-1][1] < _HOPELESS * alone_s]
                if not present or (number and self.left_s < self.bench.clock() - began_s):
                    break
        return tuple(
            WayTried(num_workers=way.workers, torch_threads=way.threads, pairs=tuple(pairs))
            for way, pairs in found.items()
        )

    def _fed_steps(self, way: _Way, iterator: Any, filling_s: float) -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(way.threads)
        try:
            if iterator is None:
                return self._settled(lambda: self.bench.loader.next_batch()[0], 0, filling_s)
            # What piled up while another way had its turn would cost nothing.
            piled_up = way.workers * (iterator._prefetch_factor + 1)
            return self._settled(lambda: next(iterator), piled_up, filling_s)
        finally:
            torch.set_num_threads(before)

    def _settled(self, take: Callable[[], Any], batches: int, filling_s: float) -> float:
        """Time the steps after so many batches, and once the workers of another way have filled their queues."""
        began_s, number = self.bench.clock(), 0
        while number < batches or self.bench.clock() - began_s < filling_s:
            self.bench.step(self.bench.transfer(take()))
            number += 1
        return self.steps(take, _BLOCK_S)


def _touch(batch: Any) -> None:
    """Read a byte of each page, as the step will: the first access to shared memory takes its time."""
    for leaf in trees.leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and leaf.is_contiguous():
            leaf.view(-1)[:: max(1, 4096 // leaf.element_size())].clone()


@dataclass
class TrialResult:
    """What a trial has shown so far."""

    handoff: Handoff = field(default_factory=Handoff)
    workers_tried: WorkersTried = field(default_factory=WorkersTried)


def try_workers(
    loader: DataLoader[Any], bench: Bench, batches: Sequence[CachedBatch], *, pinned: bool, on_cpu: bool, limit_s: float
) -> TrialResult:
    """Return what handing a batch over costs here, and what the job gains with workers.

    Nothing of a job that has workers: its hand-off is a stage of its own.

    Args:
        loader: The user's loader.
        bench: Runs the job; its caches are filled.
        batches: As they were recorded.
        pinned: Batches are pinned.
        on_cpu: The train step computes on the CPU.
        limit_s: Time for all of it.
    """
    found = TrialResult()
    if loader.num_workers > 0 or not batches or limit_s < _LEAST_S:
        return found
    # Copies: pinned memory does not outlive a fork.
    copies = [trees.copy_deep(cached.batch) for cached in batches[:_KEPT_BATCHES]]
    trial = _Trial(loader, bench, copies, pinned, limit_s)
    try:
        _try(trial, found, on_cpu=on_cpu)
    except Exception:  # noqa: BLE001 - costs the advice; what is wrong with the job itself shows in the rounds
        return found
    finally:
        bench.loader.rest()
    return found


def _try(trial: _Trial, found: TrialResult, *, on_cpu: bool) -> None:
    work = trial.loading()
    if trial.left_s < (_FEWEST_BATCHES + 1) * work.wall_s:
        return
    found.handoff = trial.handoff()
    if (_FEWEST_BATCHES + 1) * trial.one_step() > trial.left_s:
        return
    step_s = trial.steps(lambda: trial.bench.loader.next_batch()[0], _BLOCK_S)
    if work.wall_s < _WORTH_TRYING * step_s:
        return
    ways = _ways(work, step_s, threads=torch.get_num_threads() if on_cpu else None)
    # Two turns, each with the batches that are discarded before its blocks; as many ways as there is time for.
    while ways and 2 * sum(_block_s(way, work, step_s) for way in (_Way(0, 0), *ways)) > trial.left_s:
        ways.pop()
    if not ways:
        return
    found.workers_tried = WorkersTried(
        loading_s_per_batch=work.wall_s, loading_cpu_s_per_batch=work.cpu_s, ways=trial.pairs(ways, work)
    )


def _block_s(way: _Way, work: Work, step_s: float) -> float:
    """Return about how long a block of a way takes, with the batches before it."""
    return max(_BLOCK_S, _FEWEST_BATCHES * step_s) + max(3 * way.workers * step_s, _FILLING * work.wall_s)


def _ways(work: Work, step_s: float, *, threads: int | None) -> list[_Way]:
    """Return the ways worth trying: one worker, as many as the step needs, and both with cores left free by the step.

    Fewer threads are tried without workers too: what they gain alone does not count as the workers'.

    Args:
        work: Loading a batch.
        step_s: A step with its loading.
        threads: Of a train step on the CPU; None: it computes elsewhere.
    """
    cores = usable_cores()
    alone_s = max(step_s - work.wall_s, 1e-9)
    enough = math.ceil(min(_MOST_WORKERS, _SPARE_SUPPLY * work.wall_s / alone_s))
    counts = dict.fromkeys((1, max(1, min(enough, _MOST_WORKERS, int(cores)))))
    present = torch.get_num_threads()
    ways = [_Way(workers, present) for workers in counts]
    if threads is not None:
        spare = {workers: max(1, int(cores) - workers) for workers in counts}
        fewer = [_Way(workers, spare[workers]) for workers in counts if spare[workers] < threads]
        ways += [*(_Way(0, count) for count in dict.fromkeys(way.threads for way in fewer)), *fewer]
    return ways
