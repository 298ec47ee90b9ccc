"""Run one arm for one block and time it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bottleneck.loader import modes
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.caches import BatchCache, CachedBatch, keep_on_host
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.machine.device_time import StreamEvents
from bottleneck.measure.options import Loop
from bottleneck.measure.pacing import Pacing
from bottleneck.measure.preparer import Preparer
from bottleneck.measure.replays import Replays
from bottleneck.results.records import Block

MAX_STEPS_AHEAD = 2
"""Steps that the host typically launches ahead before the driver makes it wait."""
DEVICE_WARM_UP_S = 0.3
"""Seconds that an idle accelerator runs before it is timed, for its clocks and the caches of its libraries."""
_MIN_BATCHES = 4
"""Batches in a block with the train step, given as many workers."""
_MAX_BREAKS = 4
"""Excess of the steps left out of a block over those that count, at most."""
_MIN_QUICK_BATCHES = 8
"""Batches in a block of quick batches, if they take no longer than `_MIN_S`."""
_MIN_S = 0.2
_RECEIVING_S = 0.2
"""Seconds for receiving empty batches, at least."""
_MIN_TURNS = 4
"""Empty batches received per place in the prefetch queue, at least, so that the queue's length does not matter."""
_RAW = Ladder.raw
_DEVICE = Ladder.device


@dataclass
class Bench:
    """Everything needed to run the job in any of its arms."""

    loader: SwitchedLoader
    host: BatchCache
    device: BatchCache
    transfer: Callable[[Any], Any]
    step: Callable[[Any], Any]
    synchronize: Callable[[], None]
    clock: Callable[[], float]
    onto_device: Callable[[Any], Any] | None = None
    """Makes a batch for the cache on the device; None for the transfer."""
    pause: Callable[[float], None] = time.sleep
    """Lets time pass by the clock."""
    split_blocks: bool = True
    """True if half blocks are timed, which makes no sense for asynchronous steps."""
    waits_s: dict[Arm, list[float]] = field(default_factory=dict)
    """Seconds that the job waited for each batch."""
    raw_steps_s: list[tuple[float, float]] = field(default_factory=list)
    """(wait for the batch, whole step) in seconds, for each step of the last block of `raw`."""
    pace_s: dict[Arm, float] = field(default_factory=dict, init=False)
    """Seconds per batch of the last block of each arm."""
    batches: int = 0
    samples: int = 0
    preparer: Preparer = field(default_factory=Preparer)
    """Prepares the blocks of arms with a preparation."""
    replays: Replays = field(default_factory=Replays)
    """Collects batches of `raw`, for the caches to replay."""
    steps_ahead: int = 0
    """Steps that the host may launch ahead of an asynchronous device."""
    device_warm_up_s: float = 0.0
    """Seconds that the device runs before it is timed alone; 0 for the CPU, which is never idle before."""
    until_s: float = math.inf
    """Time of the clock after which a block that has its batches ends at any level of its queue."""
    loop: Loop = field(default_factory=Loop)
    """The user's own loop, if that is the train step."""
    make_events: Callable[[], StreamEvents | None] = lambda: None
    """Makes the markers of `raw` in the stream of an asynchronous device; returns None for other devices."""
    events: StreamEvents | None = None
    """Current markers; None if not asked for."""
    make_pacing: Callable[[Bench], Pacing] = Pacing
    """Makes the pacing of its visits: that of a single process, or one in step with other ranks."""
    was_broken: bool = field(default=False, init=False)
    """True if the loop ended an epoch or evaluated within a step that counts in the last block."""
    leaves_out_breaks: bool = field(default=False, init=False)
    """True if such steps are left out of blocks. Workers fill the queue in them, so a block without any is better."""
    left_out_collecting_s: float = field(default=0.0, init=False)
    """Seconds of full garbage collections in the steps left out of the last block."""
    step_s: float | None = field(default=None, init=False)
    """Seconds per step on a batch that is already on the device; None before it was measured."""
    _in_step_s: float = field(default=0.0, init=False)
    """Seconds in the train steps of `device` and `raw`, in the present block."""
    _device_s: float = field(default=0.0, init=False)
    """Seconds of all blocks of `device` outside of their steps."""
    _device_batches: int = field(default=0, init=False)
    _raw_step_s: float = field(default=0.0, init=False)
    """Seconds in the train steps of all blocks of `raw`."""
    _raw_work_s: float = field(default=0.0, init=False)
    """Seconds of all blocks of `raw` without waiting for batches."""
    _raw_batches: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.pacing = self.make_pacing(self)
        self.leaves_out_breaks = self.loader.num_workers == 0

    # --- one batch -----------------------------------------------------------------------------------------

    def run_batch(self, arm: Arm, waits: list[float], *, collects: bool = False) -> int:
        """Run one batch through an arm and return its samples."""
        samples, batch = 0, None
        if arm.mode is not None:
            asked = self.clock()
            batch, samples = self.loader.next_batch()
            waits.append(self.clock() - asked)
        if not arm.coupled:
            return samples
        if collects:
            self.replays.add(batch, samples, self.host.lend)
        if arm == _RAW:
            if self.events is None:
                self._clocked_step(self.transfer(batch))
            else:
                self.events.mark()
                batch = self.transfer(batch)
                self.events.mark()
                self._clocked_step(batch)
                self.events.mark()
            return samples
        if arm.supply == "loader" and not self.replays.vary:
            self.step(self.transfer(batch))
            return samples
        # If batches differ, the step gets those that `raw` had: those of a cache may be longer or shorter.
        if arm.supply != "device":
            cached = self.host.serve()
            self.step(self.transfer(cached.batch))
        else:
            cached = self.device.serve()
            self._clocked_step(cached.batch)
        return samples if arm.mode is not None and not self.replays.vary else cached.samples

    def _clocked_step(self, batch: Any) -> None:
        begun = self.clock()
        self.step(batch)
        self._in_step_s += self.clock() - begun

    def _refresh_caches(self) -> None:
        """Let the caches replay the batches that `raw` has received."""
        fresh = self.replays.take()
        if not fresh:
            return
        whole = self.replays.vary
        if self.device is not self.host:
            # The user's transfer may work in place.
            lend = self.host.lend
            on_device = (CachedBatch(self._put_on_device(lend(c.batch)), c.samples) for c in fresh)
            self.device.exchange(on_device, whole=whole)
        self.host.exchange(fresh, whole=whole)

    def fresh_batch(self, *, on_device: bool) -> CachedBatch:
        """Let the loader make a batch for a cache."""
        self.loader.switch(modes.ALL)
        batch, samples = self.loader.next_batch()
        kept = keep_on_host(batch)
        moves = on_device and self.device is not self.host
        return CachedBatch(self._put_on_device(kept) if moves else kept, samples)

    def _put_on_device(self, batch: Any) -> Any:
        return (self.onto_device or self.transfer)(batch)

    # --- a visit -------------------------------------------------------------------------------------------

    def begin_visit(self, arm: Arm, round_: int, batches: int) -> None:
        """Prepare for a visit to an arm."""
        self.pacing.begin_visit(arm, round_, batches)

    def end_visit(self, arm: Arm) -> None:
        """Finish a visit whose counters have been read."""
        self.pacing.end_visit(arm)

    def prepare(self, arm: Arm) -> None:
        """Switch to an arm, drain the batches in flight from the loader, and run until steady."""
        self.pacing.prepare(arm)
        self.synchronize()

    def settle(self, arm: Arm) -> int:
        """Run one more batch before a block if its first one would come early; return the samples."""
        return self.pacing.settle(arm)

    def prepare_running(self, limit_s: float) -> float:
        """Run `raw` until steady, in a loader that was started and has been asked for nothing else.

        Batches that the workers made while the job stood still are used up first.

        Returns:
            Share of the time that the job waited for batches.
        """
        waits: list[float] = []
        started, made_before = self.clock(), self.loader.arrived() or 0
        while made_before > 0 or self.clock() - started < limit_s:
            self.run_batch(_RAW, waits)
            made_before -= 1
            if self.clock() > self.until_s:
                break
        self.synchronize()
        return sum(waits) / max(self.clock() - started, 1e-9)

    def switch(self, mode: int | None) -> None:
        """Switch the loader to a mode, and let the caches replay fresh batches; the loader rests for None."""
        if mode is None:
            self.loader.rest()
        else:
            self.loader.switch(mode)
        self._refresh_caches()

    def run_waiting(self, arm: Arm) -> float:
        """Run one batch, and return the wait for it [s]; 0 if the loader rests."""
        waits = [0.0]
        self.run_batch(arm, waits)
        return waits[-1]

    def measure(self, arm: Arm, round_: int, batches: int, collecting_s: Callable[[], float] = lambda: 0.0) -> Block:
        """Time a block, after `prepare` and `settle`. The device is waited for at the edges only.

        Args:
            batches: Its minimum length. With the train step it ends after whole updates of the weights, when as many
                batches are ready as at its beginning, or after four queues; otherwise `block_batches` chooses lengths
                at which bursts do no harm.
            collecting_s: Returns the seconds of full garbage collections since the block began.
        """
        waits: list[float] = []
        queued, prepared, steady = arm.queued, arm.preparation is not None, self.pacing.steady
        if prepared:
            batches = self.preparer.limit(batches)
        batches = self.pacing.length(arm, batches)
        # A batch that a step has changed in place would be replayed changed.
        collects = arm == _RAW and not self.host.clones and self.replays.begin(batches)
        if self.replays.vary:
            self._rewind()
        unit = self.loop.batches_per_update if arm.coupled and not prepared else 1
        samples = left_out = 0
        done_s = [0.0]
        self._in_step_s = self.left_out_collecting_s = 0.0
        self.was_broken = False
        can_leave_out = self.pacing.can_leave_out(arm)
        if queued:
            steady.come_to_block()
        self.synchronize()
        before = steady.begin_block() if queued else None
        if self.events is not None:
            self.events.begin_block()
        started = self.clock()
        while True:
            breaks, in_step_s = self.loop.breaks, self._in_step_s
            collected_s = collecting_s() if can_leave_out else 0.0
            got = self.run_batch(arm, waits, collects=collects)
            done = self.clock() - started
            if self.loop.breaks != breaks:  # the loop did something else than a step
                if can_leave_out and left_out < len(done_s) + _MAX_BREAKS:
                    left_out += 1
                    self._in_step_s = in_step_s
                    started += done - done_s[-1]
                    self.left_out_collecting_s += collecting_s() - collected_s
                    del waits[len(done_s) - 1 :]
                    continue
                self.was_broken = True
            samples += got
            done_s.append(done)
            count = len(done_s) - 1
            if (
                count >= batches
                and count % unit == 0
                and (not queued or steady.may_end(count, done_s[-1]) or started + done_s[-1] > self.until_s)
            ):
                break
        self.synchronize()
        seconds = self.clock() - started
        after = steady.end_block(arm) if queued else None
        if prepared:
            self.preparer.end_block()
        if self.events is not None:
            self.events.end_block()
        block = Block(round_, samples, seconds, count, self._half_s(done_s), before, after)
        self._note(arm, block, waits, done_s)
        return block

    def _rewind(self) -> None:
        self.host.rewind()
        self.device.rewind()

    def _note(self, arm: Arm, block: Block, waits: list[float], done_s: list[float]) -> None:
        """Update the totals of batches, steps and waits."""
        count, seconds = block.batches, block.seconds
        self.batches += count
        self.samples += block.samples
        self.pace_s[arm] = seconds / count
        if arm == _DEVICE:
            self.step_s = seconds / count
            self._device_s += seconds - self._in_step_s
            self._device_batches += count
        self.waits_s.setdefault(arm, []).extend(waits)
        if arm == _RAW:
            self.raw_steps_s = [(w, end - begin) for w, begin, end in zip(waits, done_s, done_s[1:], strict=False)]
            self._raw_step_s += self._in_step_s
            self._raw_work_s += sum(whole - wait for wait, whole in self.raw_steps_s)
            self._raw_batches += count

    @property
    def loop_s_per_batch(self) -> float | None:
        """Overhead of the loop of blocks per batch, without the step [s]; None for asynchronous devices."""
        return self._device_s / self._device_batches if self._device_batches and self.split_blocks else None

    @property
    def step_s_per_batch(self) -> float | None:
        """Train step within the job [s]; None for an asynchronous device or a loop with a queue."""
        return self._of_raw(self._raw_step_s)

    @property
    def work_s_per_batch(self) -> float | None:
        """Work of the main process within the job, without waiting for batches [s]; None as above."""
        return self._of_raw(self._raw_work_s)

    def _of_raw(self, seconds: float) -> float | None:
        known = self._raw_batches > 0 and self.split_blocks and not self.loop.has_queue
        return seconds / self._raw_batches if known else None

    def _half_s(self, done_s: list[float]) -> float | None:
        """Return the time of half a block; None unless that also ends on an edge between bursts."""
        batches = len(done_s) - 1
        half = batches // 2
        even = batches % 2 == 0 and half % max(1, self.loader.num_workers) == half % self.loop.batches_per_update == 0
        return done_s[half] if even and half and self.split_blocks else None


def block_batches(arm: Arm, seconds_per_batch: float, target_s: float, workers: int) -> int:
    """Return the minimum number of batches in a block of about `target_s`.

    Workers deliver in bursts. A block of the loader alone is a multiple of the number of workers, so that its edges
    fall on the same place in a burst. With the train step, the level of the queue ensures that.
    """
    pace_s = max(seconds_per_batch, 1e-6)
    wanted = max(1, math.ceil(target_s / pace_s), min(_MIN_QUICK_BATCHES, math.floor(_MIN_S / pace_s)))
    if arm.mode is None:
        return max(2, wanted) if seconds_per_batch < 1.0 else wanted
    unit = max(1, workers)
    if unit == 1 and seconds_per_batch < 1.0:
        wanted = max(2, wanted)
    if arm.queued:
        return max(wanted, min(unit, _MIN_BATCHES))
    return unit * math.ceil(wanted / unit)


def receiving_s_per_batch(loader: SwitchedLoader, clock: Callable[[], float]) -> float | None:
    """Time batches that the workers answer at once with nothing [s]: the lower bound of any loader.

    The loader rests afterwards. None without workers, or if no batch may be left out of them.
    """
    if not loader.num_workers or not loader.can_skip_batches:
        return None
    with loader_failures("receiving"):
        loader.switch(modes.STOP)
        for _ in range(max(1, loader.queue_length)):
            loader.next_batch()
        started, taken = clock(), 0
        while taken < _MIN_TURNS * loader.queue_length or clock() - started < _RECEIVING_S:
            loader.next_batch()
            taken += 1
        seconds = clock() - started
        loader.rest()
    return seconds / taken
