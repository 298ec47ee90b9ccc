"""A trial after the rounds: the job fed by more workers than it has, in turns with the original job.

With no worker, or with one, no experiment of the ladder shows the effect of more of them. Each batch has to be handed
over. A train step on the CPU shares the cores with them, and its threads wait for each other: a step of 1 ms took 10 ms
beside two workers, and 1 ms again with one thread. So it is tried, with workers that take as long as the loader.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from bottleneck.loader import trees
from bottleneck.loader.emulated import PREFETCH, EmulatedLoader, Work, can_emulate
from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.explain_errors import job_failures
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.ledger import Blocks, Ledger
from bottleneck.measure.machine.limits import usable_cores
from bottleneck.measure.rounds.turns import OrderOfArms, StealTimeMeter, Turns, Visit
from bottleneck.measure.rounds.visit import Counters, visit
from bottleneck.results.evidence import WorkersTrial, WorkersWay
from bottleneck.results.records import Block

MAX_TRIAL_S = 6.0
_OVERTIME = 1.5
"""Multiple of it that the minimum of rounds may take, once they have begun."""
_BLOCK_S = 0.15
_MIN_ROUNDS = 3
_MAX_ROUNDS = 8
_MAX_PRESENT = 1
"""Workers of a job for which more are tried: with several, their use of the cores is visible already."""
_MAX_TRIED = 8
_SPARE = 1.1
"""Supply of the loader over the step's demand, for its uneven batches."""
_WORTH_TRYING = 0.1
"""Share of a step spent loading below which workers could gain next to nothing."""
_HOPELESS = 1.3
"""Multiple of the original job's time above which a way is not tried again."""
_KEPT_BATCHES = 4
_COMPUTES = 0.9
"""Share of its time above which a worker needs a core for all of it."""
_LOOK_S = 0.1
"""Seconds for watching the step."""
_ONE_THREAD = 1.2
"""Cores up to which the step computes with one thread."""


@dataclass(frozen=True)
class Way:
    """A number of workers, with a number of threads of the train step."""

    workers: int
    threads: int


_AS_IT_IS = Way(0, 0)


def work_of(ledger: Ledger, workers: int) -> Work | None:
    """Return the work of a process for a batch by the loader's own clocks; None if these are unknown.

    Without workers, all time of the job besides its step is loading.
    """
    known = [stage for stage in ledger.ladder.spans if stage.wall_s_per_batch and stage.cpu_s_per_batch is not None]
    wall_s = sum(stage.wall_s_per_batch or 0.0 for stage in known) * max(1, workers)
    cpu_s = sum(stage.cpu_s_per_batch or 0.0 for stage in known) * max(1, workers)
    raw_s, device_s = (ledger.seconds_per_batch(arm) for arm in (Ladder.raw, Ladder.device))
    if not wall_s or not raw_s or not device_s:
        return None
    wait_s = max(0.0, wall_s - cpu_s * (1 + max(0.0, ledger.evidence.core_wait_per_cpu_s or 0.0)))
    scale = 1.0 if workers else max(0.0, raw_s - device_s) / (cpu_s + wait_s)
    return Work(scale * cpu_s, scale * wait_s)


def ways_to_try(work: Work, step_s: float, present: Way, cores: float, *, shares: bool) -> list[Way]:
    """Return the ways worth trying; none if a worker would have neither a core nor anything to wait for.

    Args:
        work: Work of a worker for a batch.
        step_s: Time of the train step alone.
        present: The original job.
        cores: Cores that the job may use.
        shares: True if the step computes with several threads, which may be too many beside workers.
    """
    share = work.cpu_s / work.total_s
    if share > _COMPUTES and cores < 2:
        return []
    enough = math.ceil(_SPARE * work.total_s / max(step_s, 1e-6))
    most = int(min(enough, _MAX_TRIED, max(1.0, cores / max(share, 1e-6))))
    counts = [count for count in dict.fromkeys((most, most // 2)) if count > present.workers]
    ways = [Way(most, present.threads)] if counts else []
    fewer = ((count, max(1, math.floor(cores - share * count))) for count in counts if shares)
    return [*ways, *(Way(count, threads) for count, threads in fewer if threads < present.threads)]


class Trial:
    """The original job and other ways, in turns.

    Args:
        bench: Runs the job.
        step_s: Approximate time of the job per batch.
        work: Work of a worker for a batch.
        open_feed: Opens a number of emulated workers.
    """

    def __init__(self, bench: Bench, step_s: float, work: Work, open_feed: Callable[[int], EmulatedLoader]) -> None:
        self._bench = bench
        self._step_s = step_s
        self._work = work
        self._open_feed = open_feed
        self._feeds: dict[int, EmulatedLoader] = {}
        self._stolen = StealTimeMeter()
        self._number = 0
        self.kept = Blocks[Way]()

    def run(self, ways: Sequence[Way], begin_round: Callable[[], None] = lambda: None) -> None:
        """Measure for some seconds; not at all if these are too few for the minimum of rounds of any way."""
        ways = self._fitting(ways)
        if not ways:
            return
        clock, order, present = self._bench.clock, OrderOfArms[Way](seed=0), [_AS_IT_IS, *ways]
        began_s = clock()
        turns = Turns(clock, self._take_turn, left_s=lambda: MAX_TRIAL_S + began_s - clock())
        with ExitStack() as opened:
            opened.callback(torch.set_num_threads, torch.get_num_threads())
            for workers in dict.fromkeys(way.workers for way in ways):
                self._feeds[workers] = self._open_feed(workers)
                opened.callback(self._feeds[workers].close)
            for self._number in range(_MAX_ROUNDS):
                if self._number and not self._has_time(clock() - began_s):
                    break
                begin_round()
                turns.round(order.next_round(present), self.kept)
                present = [_AS_IT_IS, *(way for way in present if way is not _AS_IT_IS and not self._is_hopeless(way))]
                if len(present) < 2:
                    break
        self._bench.loader.rest()

    def _fitting(self, ways: Sequence[Way]) -> Sequence[Way]:
        """Drop ways from the end until the minimum of rounds fits."""
        turns_s = [self._guess_s(way) * (PREFETCH * way.workers + self._batches(way)) for way in ways]
        as_it_is_s = max(_BLOCK_S, 2 * self._step_s)
        fit = (_MIN_ROUNDS * (as_it_is_s + passed_s) <= MAX_TRIAL_S for passed_s in itertools.accumulate(turns_s))
        return [way for way, fits in zip(ways, fit, strict=True) if fits]

    def _guess_s(self, way: Way) -> float:
        """Return the approximate time of a batch: that of the slower of step and workers."""
        return max(self._step_s - self._work.total_s, self._work.total_s / way.workers)

    def _batches(self, way: Way) -> int:
        batches = block_batches(Ladder.raw, self._guess_s(way), _BLOCK_S, way.workers)
        return way.workers * math.ceil(batches / way.workers)

    def _has_time(self, passed_s: float) -> bool:
        """Return True if another round fits; if the minimum would take far longer than expected, one was enough."""
        each_s = passed_s / self._number
        if self._number < _MIN_ROUNDS:
            return _MIN_ROUNDS * each_s <= _OVERTIME * MAX_TRIAL_S
        return passed_s + each_s <= MAX_TRIAL_S

    def _is_hopeless(self, way: Way) -> bool:
        block, alone = self.kept.blocks[way][-1], self.kept.blocks[_AS_IT_IS][-1]
        return block.seconds / block.samples > _HOPELESS * alone.seconds / alone.samples

    def _take_turn(self, way: Way, again: int | None) -> Visit:
        if way is _AS_IT_IS:
            batches = again or block_batches(Ladder.raw, self._step_s, _BLOCK_S, self._bench.loader.num_workers)
            with job_failures("raw"):
                return visit(self._bench, Ladder.raw, self._number, batches, Counters())
        present = torch.get_num_threads()
        torch.set_num_threads(way.threads)
        try:
            return self._fed(way, again)
        finally:
            torch.set_num_threads(present)

    def _fed(self, way: Way, again: int | None) -> Visit:
        feed, clock = self._feeds[way.workers], self._bench.clock
        begun_s = clock()
        self._bench.loader.rest()
        feed.work()
        for _ in range(PREFETCH * way.workers):
            self._step(feed)
        batches = again or self._batches(way)
        self._stolen.begin()
        self._bench.synchronize()
        started_s = clock()
        samples = sum(self._step(feed) for _ in range(batches))
        self._bench.synchronize()
        block = Block(self._number, samples, clock() - started_s, batches)
        stolen = self._stolen.end(processes=1 + way.workers)
        feed.rest()
        return Visit(block, started_s - begun_s, stolen)

    def _step(self, feed: EmulatedLoader) -> int:
        batch, samples = feed.next_batch()
        self._bench.step(self._bench.transfer(batch))
        return samples


def is_worth_trying(bench: Bench, ledger: Ledger, *, on_cpu: bool) -> bool:
    """Return True if a job on the CPU has at most one worker, and loading takes a part of it that can be emulated."""
    if not on_cpu or bench.loader.num_workers > _MAX_PRESENT or bench.loop.has_queue or not can_emulate():
        return False
    if ledger.evidence.loader.own_workers:  # a worker may start no processes
        return False
    work, raw_s = work_of(ledger, bench.loader.num_workers), ledger.seconds_per_batch(Ladder.raw)
    return work is not None and raw_s is not None and work.total_s > _WORTH_TRYING * raw_s


def try_workers(
    bench: Bench, ledger: Ledger, begin_round: Callable[[], None] = lambda: None, cores: float | None = None
) -> None:
    """Keep the blocks of all ways as evidence, if there are enough of them."""
    workers, raw_s = bench.loader.num_workers, ledger.seconds_per_batch(Ladder.raw) or 0.0
    work, device_s = work_of(ledger, workers), ledger.seconds_per_batch(Ladder.device) or 0.0
    if work is None:
        return
    present, shares = Way(workers, torch.get_num_threads()), _busy_cores(bench) > _ONE_THREAD
    ways = ways_to_try(work, device_s, present, cores or usable_cores(), shares=shares)
    if not ways:
        return
    # Copies: forked workers share the batches that they hand over.
    batches = [(trees.copy_deep(cached.batch), cached.samples) for cached in bench.host.batches[:_KEPT_BATCHES]]
    trial = Trial(bench, raw_s, work, lambda workers: EmulatedLoader(batches, work, workers))
    trial.run(ways, begin_round)
    kept = trial.kept.blocks
    tried = tuple(
        WorkersWay(num_workers=way.workers, threads=way.threads, blocks=tuple(kept[way]))
        for way in ways
        if len(kept.get(way, ())) >= _MIN_ROUNDS
    )
    if tried:
        as_it_is = tuple(kept[_AS_IT_IS])
        ledger.note(workers_trial=WorkersTrial(threads=present.threads, as_it_is=as_it_is, ways=tried))


def _busy_cores(bench: Bench) -> float:
    """Return the number of cores that the train step keeps busy."""
    bench.prepare(Ladder.device)
    began_s, cpu_s = bench.clock(), time.process_time()
    while bench.clock() - began_s < _LOOK_S:
        bench.step(bench.device.serve().batch)
    return (time.process_time() - cpu_s) / (bench.clock() - began_s)
