"""One visit to an arm: prepare, open the counters, settle, measure, close the counters, in the right order."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bottleneck.loader.observing.garbage import CollectionWatch
from bottleneck.measure.bench import Bench
from bottleneck.measure.evidence.io import StorageReads
from bottleneck.measure.ladder import Arm
from bottleneck.measure.machine.usage import Utilisation
from bottleneck.measure.rounds.turns import StealTime, StealTimeMeter, Visit
from bottleneck.measure.training import Training
from bottleneck.results.records import Block


class FullCollections(CollectionWatch):
    """Sums the time of full garbage collections in the main process while it is entered.

    Batches of many Python objects trigger one about every few batches, which then takes as long as several of them. A
    block of a few batches has one or none, and would differ by that from the next; so its share is noted with each
    block, for the analysis to spread over all of them.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds: list[float] = []
        super().__init__(self._seconds.append, clock)

    def __enter__(self) -> FullCollections:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def begin_block(self) -> None:
        self._seconds.clear()

    def end_block(self) -> float:
        """Return the seconds since the block began."""
        return sum(self._seconds)


@dataclass
class Counters:
    """Counters read at the edges of blocks."""

    reads: StorageReads = field(default_factory=StorageReads)
    utilisation: Utilisation = field(default_factory=Utilisation)
    stolen: StealTimeMeter = field(default_factory=StealTimeMeter)
    training: Training = field(default_factory=Training)
    collections: FullCollections = field(default_factory=FullCollections)


def visit(bench: Bench, arm: Arm, round_: int, batches: int, counters: Counters, rounds: int = 1) -> Visit:
    """Measure a block of an arm, or those of several rounds one after the other.

    Args:
        bench: Runs the arm.
        arm: The arm.
        round_: Number of the first round.
        batches: Minimum length of a block.
        counters: Open while a block is steady.
        rounds: Number of blocks.
    """
    started = bench.clock()
    bench.begin_visit(arm, round_, batches)
    bench.loader.begin_epoch_within(rounds * batches)
    bench.prepare(arm)
    first, settled_s, stolen = measure_counted(bench, arm, round_, batches, counters)
    broken, further = bench.was_broken, []
    for number in range(round_ + 1, round_ + rounds):
        block, _, more = measure_counted(bench, arm, number, batches, counters, settles=False)
        further.append(block)
        broken, stolen = broken or bench.was_broken, max(stolen, more, key=lambda each: each.share)
    bench.end_visit(arm)
    return Visit(first, settled_s - started, stolen, broken, tuple(further))


def measure_counted(
    bench: Bench, arm: Arm, round_: int, batches: int, counters: Counters, *, settles: bool = True
) -> tuple[Block, float, StealTime]:
    """Measure a block of a running arm, with the counters open.

    Opening them takes a millisecond, in which the workers get ahead: `Bench.settle` follows it, except if blocks of
    seconds follow one another.

    Returns:
        The block, the time of its beginning by the bench's clock [s], and the time stolen in it.
    """
    before = counters.reads.read()
    counters.training.begin_block()
    counters.utilisation.begin_block(arm)
    counters.stolen.begin()
    settling = bench.settle(arm) if settles else 0
    settled_s = bench.clock()
    counters.collections.begin_block()
    block = bench.measure(arm, round_, batches, counters.collections.end_block)
    collecting_s = counters.collections.end_block() - bench.left_out_collecting_s
    stolen = counters.stolen.end(processes=1 + bench.loader.num_workers)
    device_clock_hz = counters.utilisation.end_block()
    counters.training.end_block(arm, round_)
    counters.reads.add(arm, before, settling + block.samples)
    return replace(block, device_clock_hz=device_clock_hz, collecting_s=collecting_s), settled_s, stolen
