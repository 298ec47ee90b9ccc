"""Run one arm for one block and time it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bottleneck.measure.arms import Arm
from bottleneck.measure.batches import BatchCache, CachedBatch, keep_on_host
from bottleneck.measure.cold import ColdPool
from bottleneck.results.records import Block
from bottleneck.staging import stages
from bottleneck.staging.loader import SwitchedLoader

# A slow job must not spend the budget on warming up; batches beyond the first are dispensable then.
_WARM_UP_S = 0.5
_KEEPS_UP_SHARE = 0.25
"""Share of the time spent waiting below which the loader may be as fast as the step."""
_QUEUE_TURNS = 4
"""Batches per worker to run on for; twice the default prefetch_factor."""
_FEWEST_LOOKS = 3
"""Batches after which it is judged whether the loader keeps up, if that is a turn of all workers."""
_LOST_SHARE = 0.03
"""Share of the time lost to batches that had not arrived below which the loader keeps up: the margin of the ladder."""
_LOOK_EVERY_S = 2e-3


@dataclass
class Bench:
    """Everything that is needed to run the job in any of its arms."""

    loader: SwitchedLoader
    host: BatchCache
    device: BatchCache
    transfer: Callable[[Any], Any]
    step: Callable[[Any], Any]
    synchronize: Callable[[], None]
    clock: Callable[[], float]
    pause: Callable[[float], None] = time.sleep
    """Lets time pass by the clock."""
    split_blocks: bool = True
    """Note when half of a block was done; meaningless where steps run asynchronously."""
    waits_s: dict[Arm, list[float]] = field(default_factory=dict)
    """How long the job waited for each batch."""
    batches: int = 0
    samples: int = 0
    cold: ColdPool | None = None
    """Makes files cold and warm; None where that is not asked for."""
    _batches_are_quick: bool = field(default=True, init=False)
    """Whether the arm that was prepared last warmed up in little time."""

    # --- one batch -----------------------------------------------------------------------------------------

    def _run_once(self, arm: Arm, waits: list[float]) -> int:
        """Run one batch through an arm and return its samples."""
        samples, batch = 0, None
        if arm.mode is not None:
            asked = self.clock()
            batch, samples = self.loader.next_batch()
            waits.append(self.clock() - asked)
        if not arm.coupled:
            return samples
        if arm.supply == "loader":
            self.step(self.transfer(batch))
            return samples
        if arm.supply == "host":
            cached = self.host.serve()
            self.step(self.transfer(cached.batch))
        else:
            cached = self.device.serve()
            self.step(cached.batch)
        return samples if arm.mode is not None else cached.samples

    def fresh_batch(self, *, on_device: bool) -> CachedBatch:
        """Let the loader make a batch for a cache."""
        self.loader.switch(stages.ALL)
        batch, samples = self.loader.next_batch()
        kept = keep_on_host(batch)
        moves = on_device and self.device is not self.host
        return CachedBatch(self.transfer(kept) if moves else kept, samples)

    # --- a visit -------------------------------------------------------------------------------------------

    def prepare(self, arm: Arm) -> None:
        """Switch to an arm, throw away what is in flight, and run until steady."""
        if arm.mode is None:
            self.loader.rest()
            self._run_once(arm, [])
            self.synchronize()
            return
        if self.cold is not None:
            self.cold.prepare_for(arm)
        self.loader.switch(arm.mode)
        started = self.clock()
        waits: list[float] = []
        self._run_once(arm, [])  # comes late: it was asked for after the switch
        first_s = self.clock() - started
        for _ in range(max(2, self.loader.num_workers) - 1):
            if self.clock() - started > _WARM_UP_S:
                break
            self._run_once(arm, waits)
        self._batches_are_quick = self.clock() - started <= _WARM_UP_S
        if arm.coupled and sum(waits) <= _KEEPS_UP_SHARE * (self.clock() - started - first_s):
            self._fill_queue(arm)
        self.synchronize()

    def settle(self, arm: Arm) -> int:
        """Run one batch more before a block, so that it begins as it ends: right after a batch.

        What was done since `prepare`, such as opening counters, gave the workers a start of that time, and the block
        would come out shorter by it; waiting for this batch uses the start up. Of slow batches it is a vanishing
        part, and cold files are too few to spend any on it.

        Args:
            arm: What to run; `prepare` must have been called.

        Returns:
            The samples of the batch, for the counters to count; 0 where none was run.
        """
        if arm.mode is None or arm.cold or not self._batches_are_quick:
            return 0
        return self._run_once(arm, [])

    def _fill_queue(self, arm: Arm) -> None:
        """Run on where the loader seems to keep up: its queue, empty after a switch, evens out uneven batches.

        A loader that is hardly faster than the step needs many steps to fill it, and a job whose queue is full in the
        long run would be measured as one that waits. So the job stands still for the loader as soon as a turn of all
        workers has lost next to no time; the queue of a loader that is slower stays empty, as it does in the long run.
        """
        batches, turn = _QUEUE_TURNS * self.loader.num_workers, max(_FEWEST_LOOKS, self.loader.num_workers)
        if arm.cold and self.cold is not None:
            batches = min(batches, self.cold.spare())
        started = since = self.clock()
        lost_s, looks = 0.0, 0
        for _ in range(batches):
            if self.clock() - started > _WARM_UP_S or self.loader.is_ahead():
                break
            if looks == turn:
                lost_s, looks, since = 0.0, 0, self.clock()
            lost_s, looks = lost_s + self._run_looking(arm), looks + 1
            if looks == turn and lost_s <= _LOST_SHARE * (self.clock() - since):
                break
        whole_turn = looks >= max(2, self.loader.num_workers)
        if whole_turn and not arm.cold and lost_s <= _LOST_SHARE * (self.clock() - since):
            self._let_loader_get_ahead()

    def _run_looking(self, arm: Arm) -> float:
        """Run one batch; return how long the job waited for it if it had not arrived [s]: infinitely if unknown."""
        waits: list[float] = []
        there = self.loader.arrived()
        self._run_once(arm, waits)
        return math.inf if there is None else 0.0 if there else waits[0]

    def _let_loader_get_ahead(self) -> None:
        until = self.clock() + _WARM_UP_S
        while self.clock() < until and not self.loader.is_ahead():
            self.pause(_LOOK_EVERY_S)

    def measure(self, arm: Arm, round_: int, batches: int) -> Block:
        """Time a block; the device is waited for at its edges only.

        Args:
            arm: What to run; `prepare` and `settle` must have been called.
            round_: The round that the block belongs to.
            batches: Its length; `block_batches` gives lengths at which workers' bursts do no harm.
        """
        waits: list[float] = []
        if arm.cold and self.cold is not None:
            batches = self.cold.limit(batches)
        half = batches // 2
        # Half of a block tells something only where it, too, ends on an edge between bursts.
        even = batches % 2 == 0 and half % max(1, self.loader.num_workers) == 0
        samples, half_s = 0, None
        self.synchronize()
        started = self.clock()
        for number in range(batches):
            if number == half and even and self.split_blocks:
                half_s = self.clock() - started
            samples += self._run_once(arm, waits)
        self.synchronize()
        seconds = self.clock() - started
        if arm.cold and self.cold is not None:
            self.cold.end_block()
        self.waits_s.setdefault(arm, []).extend(waits)
        self.batches += batches
        self.samples += samples
        return Block(round_, samples, seconds, batches, half_s)

    def watch(self, arm: Arm, limit_s: float) -> tuple[list[float], float]:
        """Run an arm without a break, for a look at it that is no block.

        Args:
            arm: What to run; `prepare` must have been called.
            limit_s: Time after which it ends.

        Returns:
            The waits, batch after batch, and the time of all together [s].
        """
        waits: list[float] = []
        started = self.clock()
        while self.clock() - started < limit_s:
            self.samples += self._run_once(arm, waits)
            self.batches += 1
        self.synchronize()
        return waits, self.clock() - started


def block_batches(arm: Arm, seconds_per_batch: float, target_s: float, workers: int) -> int:
    """How many batches a block of about `target_s` has.

    Workers deliver in bursts, so a block is a multiple of the number of workers: its edges then fall on the same
    place in a burst.
    """
    wanted = max(1, math.ceil(target_s / max(seconds_per_batch, 1e-6)))
    if arm.mode is None:
        return max(2, wanted) if seconds_per_batch < 1.0 else wanted
    unit = max(1, workers)
    if unit == 1 and seconds_per_batch < 1.0:
        wanted = max(2, wanted)
    return unit * math.ceil(wanted / unit)
