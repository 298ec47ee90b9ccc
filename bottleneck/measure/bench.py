"""Run one arm for one block and time it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bottleneck.loader import modes
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.caches import BatchCache, CachedBatch, keep_on_host
from bottleneck.measure.cold import ColdFiles
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.machine.device_time import StreamEvents
from bottleneck.measure.options import Loop
from bottleneck.measure.replays import Replays
from bottleneck.measure.rounds.steady import SteadyState
from bottleneck.results.records import Block

# The loader alone, where it is slow, must not spend the budget on warming up.
_WARM_UP_S = 0.5
MAX_STEPS_AHEAD = 2
"""Steps that the host launches ahead before the driver makes it wait, mostly."""
DEVICE_WARM_UP_S = 0.3
"""How long an accelerator that was idle runs before it is timed: its clocks, and the caches of its libraries."""
_FEWEST_BATCHES = 4
"""Batches that a block with the train step has, where there are as many workers."""
_MOST_BREAKS = 4
"""By how much the steps that are left out of a block may outnumber those that count."""
LOOP_BREAKS_OFF = (
    "loop-breaks-off",
    "The script's loop ends an epoch, evaluates or starts a loader again within a few batches, inside of "
    "blocks: that time counts as part of the step. Let it train in longer epochs.",
)
"""The warning where such steps cannot be left out."""
_FEWEST_QUICK_BATCHES, _SHORTEST_S = 8, 0.2
"""Batches that a block has, where they take no longer than this."""
_RECEIVING_S, _LEAST_TURNS = 0.2, 4
"""For how long empty batches are received, and how many of each worker: of these the queue's own length is no part."""
_RAW, _DEVICE = Ladder.raw, Ladder.device


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
    onto_device: Callable[[Any], Any] | None = None
    """Makes a batch for the cache on the device; None: the transfer."""
    pause: Callable[[float], None] = time.sleep
    """Lets time pass by the clock."""
    split_blocks: bool = True
    """Note when half of a block was done; meaningless where steps run asynchronously."""
    waits_s: dict[Arm, list[float]] = field(default_factory=dict)
    """How long the job waited for each batch."""
    raw_steps_s: list[tuple[float, float]] = field(default_factory=list)
    """Of the job's last block, step by step: the wait for its batch, and all that it took."""
    batches: int = 0
    samples: int = 0
    cold: ColdFiles | None = None
    """Makes files cold and warm; None where that is not asked for."""
    replays: Replays = field(default_factory=Replays)
    """Gathers what raw receives, for the caches to replay."""
    steps_ahead: int = 0
    """Steps that the host may launch ahead of a device that works asynchronously."""
    device_warm_up_s: float = 0.0
    """How long the device runs before it is timed alone; 0 for the CPU, which is never idle before."""
    until_s: float = math.inf
    """When, by the clock, a block that has its batches ends, at any level of its queue."""
    loop: Loop = field(default_factory=Loop)
    """The user's own loop, where the train step is one."""
    make_events: Callable[[], StreamEvents | None] = lambda: None
    """Makes what marks the batches of raw in the stream of an asynchronous device; None of another one."""
    events: StreamEvents | None = None
    """What marks them now; None: that is not asked for."""
    was_broken: bool = field(default=False, init=False)
    """That loop ended an epoch, or evaluated, within a step that counts in the last block."""
    leaves_out_breaks: bool = field(default=False, init=False)
    """Steps in which it does are left out of blocks. Workers fill the queue in them: a block without any is better."""
    left_out_collecting_s: float = field(default=0.0, init=False)
    """Time of full garbage collections in the steps that were left out of the last block."""
    step_s: float | None = field(default=None, init=False)
    """What the job takes for a batch that is on the device already; None before that was measured."""
    _in_step_s: float = field(default=0.0, init=False)
    """Time in train steps of `device` and of raw, in the present block."""
    _device_s: float = field(default=0.0, init=False)
    """Time of all blocks of `device`, less that in their steps."""
    _device_batches: int = field(default=0, init=False)
    _raw_step_s: float = field(default=0.0, init=False)
    """Time in the train steps of all blocks of raw."""
    _raw_work_s: float = field(default=0.0, init=False)
    """Time of all blocks of raw, less that of waiting for batches."""
    _raw_batches: int = field(default=0, init=False)
    _batches_are_quick: bool = field(default=True, init=False)
    """Whether the loader alone warmed up in little time."""

    def __post_init__(self) -> None:
        self._steady = self._make_steady()
        self.leaves_out_breaks = self.loader.num_workers == 0

    def _can_leave_out(self, arm: Arm) -> bool:
        """Whether a single step of a script has a time of its own: not on a device that works asynchronously."""
        is_alone = self.split_blocks and not self.loop.has_queue and self.loop.batches_ahead == 1
        return self.leaves_out_breaks and is_alone and arm.coupled

    def _make_steady(self) -> SteadyState:
        return SteadyState(self.loader, self.clock, self.pause, self.steps_ahead)

    # --- one batch -----------------------------------------------------------------------------------------

    def _run_once(self, arm: Arm, waits: list[float], *, collects: bool = False) -> int:
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
                self._marked_step(self.events, batch)
            return samples
        if arm.supply == "loader" and not self.replays.vary:
            self.step(self.transfer(batch))
            return samples
        # Where batches differ, the step gets the ones that raw had: those of a cache may be longer, or shorter.
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

    def _marked_step(self, events: StreamEvents, batch: Any) -> None:
        events.mark()
        batch = self.transfer(batch)
        events.mark()
        self._clocked_step(batch)
        events.mark()

    def _refresh_caches(self) -> None:
        """Let the caches replay what raw has received."""
        fresh = self.replays.take()
        if not fresh:
            return
        whole = self.replays.vary
        if self.device is not self.host:
            # A transfer of the user's may work in place.
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
        """Do what has to be done before a visit is prepared: where there are other ranks, they have to hear of it."""

    def end_visit(self, arm: Arm) -> None:
        """Do what has to be done when all counters of a visit are read: other ranks may still be at it."""

    def prepare(self, arm: Arm) -> None:
        """Switch to an arm, take out of the loader what is in flight, and run until steady."""
        if arm.mode is None:
            self._switch(None)
            self._warm_up_device(arm)
        else:
            if self.cold is not None:
                self.cold.prepare_for(arm)
            self._switch(arm.mode)
            if arm.coupled and not arm.cold:
                self._steady.reach(arm, partial(self._run_waiting, arm), self.step_s)
                if self.loop.has_queue:
                    self._warm_up_device(arm)
            else:
                self._warm_up_loader(arm)
        self.synchronize()

    def prepare_running(self, limit_s: float) -> float:
        """Run raw, in a loader that was started and has been asked for nothing else, until steady.

        What the workers have made while the job stood still is used up first.

        Returns:
            The share of the time that the job waited for batches.
        """
        waits: list[float] = []
        started, made_before = self.clock(), self.loader.arrived() or 0
        while made_before > 0 or self.clock() - started < limit_s:
            self._run_once(_RAW, waits)
            made_before -= 1
            if self.clock() > self.until_s:
                break
        self.synchronize()
        return sum(waits) / max(self.clock() - started, 1e-9)

    def _switch(self, mode: int | None) -> None:
        if mode is None:
            self.loader.rest()
        else:
            self.loader.switch(mode)
        self._refresh_caches()

    def _warm_up_device(self, arm: Arm) -> None:
        started = self.clock()
        self._run_once(arm, [])
        while self.clock() - started < self.device_warm_up_s:
            self._run_once(arm, [])
            self.synchronize()

    def _warm_up_loader(self, arm: Arm) -> None:
        """Run until each worker has begun its second batch, where that is quick."""
        started = self.clock()
        self._run_once(arm, [])  # comes late: it was asked for after the switch
        for _ in range(max(2, self.loader.num_workers) - 1):
            if self.clock() - started > _WARM_UP_S:
                break
            self._run_once(arm, [])
        self._batches_are_quick = self.clock() - started <= _WARM_UP_S

    def _run_waiting(self, arm: Arm) -> float:
        """Run one batch, and return how long the job waited for it [s]; 0 where the loader is asked for none."""
        waits = [0.0]
        self._run_once(arm, waits)
        return waits[-1]

    def settle(self, arm: Arm) -> int:
        """Run one batch more before a block, so that it begins as it ends: right after a batch. Return its samples.

        What was done since `prepare`, such as opening counters, gave the workers a start of that time, and the block
        would come out shorter by it; waiting for this batch uses the start up. Of slow batches that the job waits for
        it is a vanishing part, and cold files are too few to spend any on it.
        """
        if arm.mode is None or arm.cold:
            return 0
        if self._steady.has_slow_batches if arm.coupled else not self._batches_are_quick:
            return 0
        return self._run_once(arm, [])

    def measure(self, arm: Arm, round_: int, batches: int, collecting_s: Callable[[], float] = lambda: 0.0) -> Block:
        """Time a block; `prepare` and `settle` come before. The device is waited for at the edges only.

        Args:
            batches: Its length, at least: with the train step it ends after whole updates of the weights, when as many
                batches lie ready as when it began, or after four queues; otherwise `block_batches` gives lengths at
                which bursts do no harm.
            collecting_s: How long full garbage collections have taken since the block began.
        """
        waits: list[float] = []
        if arm.cold and self.cold is not None:
            batches = self.cold.limit(batches)
        queued = arm.mode is not None and arm.coupled and not arm.cold
        # What a step has changed in place would be replayed changed.
        collects = arm == _RAW and not self.host.clones and self.replays.begin(batches)
        if self.replays.vary:
            batches = self._whole_passes(arm, batches)
        unit = self.loop.batches_per_update if arm.coupled and not arm.cold else 1
        samples, done_s, self._in_step_s = 0, [0.0], 0.0
        left_out, self.was_broken, self.left_out_collecting_s = 0, False, 0.0
        can_leave_out = self._can_leave_out(arm)
        if queued:
            self._steady.come_to_block()
        self.synchronize()
        before = self._steady.begin_block() if queued else None
        if self.events is not None:
            self.events.begin_block()
        started = self.clock()
        while True:
            breaks, in_step_s = self.loop.breaks, self._in_step_s
            collected_s = collecting_s() if can_leave_out else 0.0
            got = self._run_once(arm, waits, collects=collects)
            done = self.clock() - started
            if self.loop.breaks != breaks:  # what the loop did then is no step
                if can_leave_out and left_out < len(done_s) + _MOST_BREAKS:
                    left_out, self._in_step_s, started = left_out + 1, in_step_s, started + done - done_s[-1]
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
                and (not queued or self._steady.may_end(count, done_s[-1]) or started + done_s[-1] > self.until_s)
            ):
                break
        self.synchronize()
        seconds = self.clock() - started
        after = self._steady.end_block(arm) if queued else None
        if arm.cold and self.cold is not None:
            self.cold.end_block()
        if self.events is not None:
            self.events.end_block()
        self._note(arm, count, seconds, waits, done_s)
        self.batches += count
        self.samples += samples
        return Block(round_, samples, seconds, count, self._half_s(done_s), before, after)

    def _note(self, arm: Arm, count: int, seconds: float, waits: list[float], done_s: list[float]) -> None:
        """Note what is known of steps and waits beyond the block."""
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
        """What the loop of blocks takes a batch, without the step; None where a device works asynchronously."""
        return self._device_s / self._device_batches if self._device_batches and self.split_blocks else None

    @property
    def step_s_per_batch(self) -> float | None:
        """What the train step takes within the job; None where a device, or a thread behind a queue, works on."""
        return self._of_raw(self._raw_step_s)

    @property
    def work_s_per_batch(self) -> float | None:
        """What the main process takes within the job, without waiting for batches; None as above."""
        return self._of_raw(self._raw_work_s)

    def _of_raw(self, seconds: float) -> float | None:
        known = self._raw_batches > 0 and self.split_blocks and not self.loop.has_queue
        return seconds / self._raw_batches if known else None

    def _whole_passes(self, arm: Arm, batches: int) -> int:
        """Return a length at which each of the batches that the caches replay is met equally often."""
        self.host.rewind()
        self.device.rewind()
        if arm.mode is not None:
            return batches
        return len(self.device) * math.ceil(batches / len(self.device))

    def _half_s(self, done_s: list[float]) -> float | None:
        """Return the time of half a block; only where that, too, ends on an edge between bursts."""
        batches = len(done_s) - 1
        half = batches // 2
        even = batches % 2 == 0 and half % max(1, self.loader.num_workers) == half % self.loop.batches_per_update == 0
        return done_s[half] if even and half and self.split_blocks else None


def block_batches(arm: Arm, seconds_per_batch: float, target_s: float, workers: int) -> int:
    """How many batches a block of about `target_s` has, at least.

    Workers deliver in bursts. Of the loader alone a block is a multiple of the number of workers: its edges then fall
    on the same place in a burst. With the train step the level of the queue sees to that.
    """
    pace_s = max(seconds_per_batch, 1e-6)
    wanted = max(1, math.ceil(target_s / pace_s), min(_FEWEST_QUICK_BATCHES, math.floor(_SHORTEST_S / pace_s)))
    if arm.mode is None:
        return max(2, wanted) if seconds_per_batch < 1.0 else wanted
    unit = max(1, workers)
    if unit == 1 and seconds_per_batch < 1.0:
        wanted = max(2, wanted)
    if arm.coupled and not arm.cold:
        return max(wanted, min(unit, _FEWEST_BATCHES))
    return unit * math.ceil(wanted / unit)


def receiving_s_per_batch(loader: SwitchedLoader, clock: Callable[[], float]) -> float | None:
    """Time batches that the workers answer with nothing, at once [s]: no loader seems quicker. It rests afterwards.

    None where batches do not come from workers, or none may be left out of them.
    """
    if not loader.num_workers or not loader.can_skip_batches:
        return None
    with loader_failures("receiving"):
        loader.switch(modes.STOP)
        for _ in range(max(1, loader.queue_length)):
            loader.next_batch()
        started, taken = clock(), 0
        while taken < _LEAST_TURNS * loader.queue_length or clock() - started < _RECEIVING_S:
            loader.next_batch()
            taken += 1
        seconds = clock() - started
        loader.rest()
    return seconds / taken
