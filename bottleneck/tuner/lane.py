"""Variants of a job that are ready to run: each has workers of its own, which rest while another one is measured."""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.errors import MeasurementError
from bottleneck.job.loader_args import rebuild_loader
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of, step_surroundings
from bottleneck.loader import modes
from bottleneck.loader.user_code import PassesThrough
from bottleneck.measure.bench import MAX_STEPS_AHEAD, Bench, block_batches
from bottleneck.measure.caches import BatchCache
from bottleneck.measure.device import DeviceMemory, JobOnDevice, devices_of, make_synchronize
from bottleneck.measure.explain_errors import job_failures
from bottleneck.measure.ladder import Arm
from bottleneck.measure.ledger import Blocks
from bottleneck.measure.machine.environment import OtherLoad
from bottleneck.measure.machine.limits import usable_cores
from bottleneck.measure.options import Loop, MeasureOptions
from bottleneck.measure.ranks.lockstep import bench_maker
from bottleneck.measure.rounds.turns import OrderOfArms, StealTime, Turns, Visit
from bottleneck.measure.start import open_loader, start_workers
from bottleneck.measure.training import TrainingState, is_finite, loss_in
from bottleneck.results.records import Block
from bottleneck.tuner.change import Settings, build
from bottleneck.tuner.changes.samples import prepare
from bottleneck.tuner.ranks import Ranks

_RAW = Arm(modes.ALL, "loader")
_BLOCK_STEPS = 8
_SHORTEST_BLOCK_S, _LONGEST_BLOCK_S = 0.4, 2.0
_WARM_STEPS, _LONG_STEP_S = 2, 2.0
_MOST_VISITS = 3
"""Of a block in which a script ended its epoch or evaluated, until such steps are left out of it."""
_FIRST_VISITS, _LONG_VISIT_S = 2, 3.0
"""Visits to the job as it was given that tell what one takes: the first tries out how long a block is, which matters
little where it takes longer than this."""
_WAITS_MATTER = 0.1
"""Share of its time that a job waits for batches, from which on the loader comes first."""

Clock = Callable[[], float]


class LoopEnded(PassesThrough):
    """A script's loop, which is the train step, asks for no further batch; the reason is its cause."""


class Lane:
    """A variant that runs on its device, from the same state of the training before each block."""

    def __init__(self, pipeline: Pipeline, loader: DataLoader[Any], loop: Loop | None, ranks: Ranks) -> None:
        prepare(loader.dataset)
        self._ranks = ranks
        self._clock, self._device, self._loop = time.perf_counter, device_of(pipeline), loop or Loop()
        self._job = JobOnDevice.of(pipeline, loader, self._device, self._loop)
        self._surroundings = partial(step_surroundings, pipeline)
        self._job.move_model()
        used = devices_of(pipeline.model, pipeline.optimizer)
        self._synchronize = make_synchronize(self._device, (self._device, *used))
        roots = {"the model": pipeline.model, "the optimizer": pipeline.optimizer, "the train step": self._job.step}
        self._state = TrainingState(roots, self._synchronize, self._clock)
        self._memory = DeviceMemory(self._device, pipeline.model, pipeline.optimizer)
        self._loss: torch.Tensor | float | None = None
        self.first_batch_s = 0.0
        """From starting the workers to their first batch."""
        self.setup_s = 0.0
        """What the first step took beyond a later one."""
        self.bare_step_s = 0.0
        """What a step takes once its batch is there; 0: not known."""
        self.step_s = 0.0
        """About how long a step takes, with its wait for the batch."""
        self.waiting_share = 1.0
        """Share of the time of all blocks in which the job waited for batches; 1: not known."""
        self.peak_device_bytes: int | None = None
        """The most memory of the device that a block has needed."""
        self.loss_is_finite = True
        """Each block ended with a loss that is a finite number, where the step gives one."""
        self.breaks_off = False
        """The loop of a script ended an epoch, or evaluated, in a block that counts."""

    @property
    def waits(self) -> bool:
        """The job waits for batches for a good part of its time."""
        return self.bare_step_s < (1 - _WAITS_MATTER) * self.step_s

    def block(self, number: int) -> Block:
        """Measure a block; the workers rest before it and after it.

        Raises:
            MeasurementError: The job fails, here and when it is opened.
        """
        with job_failures("raw"), self._surroundings():
            self._state.begin_round()
            self._memory.begin()
            block = self._measure(number)
        self.step_s = block.seconds / max(1, block.batches)
        self.loss_is_finite &= self._loss is None or is_finite(self._loss)
        self.peak_device_bytes = self._memory.peak_bytes()
        return block

    def _measure(self, number: int) -> Block:
        raise NotImplementedError

    def close(self) -> None:
        """Stop the workers, and give the memory back at once: a variant may have its own model.

        Somebody may hold the lane for longer.
        """
        device = self._device
        for name in [name for name in vars(self) if name.startswith("_")]:
            delattr(self, name)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()

    # --- steps ---------------------------------------------------------------------------------------------

    def _step(self, batch: Any) -> None:
        """Train on a batch that is on the device, and keep the loss, which is looked at after the block."""
        try:
            self._loss = loss_in(self._job.step(batch))
        except MeasurementError as reason:  # of no step of the user's, but of the loop that is fed
            raise LoopEnded from reason

    def _warm_up(self, first: Any, *others: Any) -> None:
        """Run the first steps: what they compile, try and allocate is no part of a block.

        Whoever loads has to rest: CUDA graphs are recorded, and what a thread that pins batches asks of the driver
        at that time would be an error in both.
        """
        self._first = first
        first_s = self._timed_step(first)
        later_s: list[float] = []
        for batch in others:
            if not later_s or self._ranks.most(later_s[0]) < _LONG_STEP_S:
                later_s.append(self._timed_step(batch))
        self.bare_step_s = min(later_s)
        self.setup_s = max(0.0, first_s - self.bare_step_s)
        self._state.begin_round()  # kept now: another variant may train the same weights before the first block

    def bare_step(self) -> float:
        """Seconds of a step, on the batch of the first one; the workers rest.

        Raises:
            MeasurementError: The job fails.
        """
        with job_failures("raw"), self._surroundings():
            return self._timed_step(self._first)

    def _timed_step(self, batch: Any) -> float:
        """Seconds of a step; a loop that gathers gradients makes a whole update, with the same batch."""
        began_s, batches = self._clock(), self._loop.batches_per_update
        for _ in range(batches):
            self._step(self._job.transfer(batch))
        self._synchronize()
        return (self._clock() - began_s) / batches


class RunningLane(Lane):
    """Runs without end, as in the middle of an epoch."""

    def __init__(self, pipeline: Pipeline, budget_s: float, loop: Loop | None, ranks: Ranks) -> None:
        super().__init__(pipeline, pipeline.make_loader(), loop, ranks)
        self._waited_s = self._measured_s = 0.0
        self._loader = open_loader(self._job.loader, (), MeasureOptions(), budget_s)
        try:
            self.first_batch_s = start_workers(self._loader, self._clock).seconds
            with job_failures("raw"):
                batches = [self._loader.next_batch()[0] for _ in range(1 + _WARM_STEPS)]
                self._loader.rest()
                ranks.begin_steps()
                nothing, make = BatchCache([]), Bench if ranks.group is None else bench_maker(ranks.group, self._job)
                self._bench = make(
                    loader=self._loader, host=nothing, device=nothing, transfer=self._job.transfer, step=self._step,
                    synchronize=self._synchronize, clock=self._clock, split_blocks=False, loop=self._loop,
                    steps_ahead=0 if self._job.on_cpu else MAX_STEPS_AHEAD,
                )  # fmt: skip
                self._warm_up(*batches)
                self._bench.step_s = self.bare_step_s  # which says whether whoever loads is slower
        except BaseException:
            self.close()
            raise

    def _measure(self, number: int) -> Block:
        bench, workers = self._bench, self._loader.num_workers
        bench.begin_visit(_RAW, 0, max(1, workers))
        bench.prepare(_RAW)
        if not self.step_s:  # a first block, which says how long one is
            first = bench.measure(_RAW, 0, max(1, workers))
            self.step_s = first.seconds / first.batches
        target_s = min(_LONGEST_BLOCK_S, max(_SHORTEST_BLOCK_S, _BLOCK_STEPS * self.step_s))
        for tries in range(1, _MOST_VISITS + 1):
            batches = block_batches(_RAW, self.step_s, target_s, workers)
            bench.begin_visit(_RAW, number, batches)
            if workers or self._ranks.group is not None:  # without them nothing got ahead while the clock was read
                bench.settle(_RAW)
            block = bench.measure(_RAW, number, batches)
            if not self._ranks.most(bench.was_broken):
                break
            bench.leaves_out_breaks = tries > 1
        self.breaks_off |= bench.was_broken
        self._waited_s += sum(wait_s for wait_s, _ in bench.raw_steps_s)
        self._measured_s += block.seconds
        self.waiting_share = self._waited_s / max(self._measured_s, 1e-9)
        self._loader.rest()
        return block

    def close(self) -> None:
        """Stop the workers."""
        try:
            self._loader.close()
        finally:  # a lane is kept for what it has shown, its model is not
            super().close()


class EpochLane(Lane):
    """Runs whole epochs of the loader as it is: each block is one of them, its start included."""

    def __init__(self, pipeline: Pipeline, loop: Loop | None, ranks: Ranks) -> None:
        loader = pipeline.make_loader()
        # The user's own is left alone: with workers that it keeps, it would keep these.
        super().__init__(pipeline, rebuild_loader(loader, {}) if loader is pipeline.loader else loader, loop, ranks)
        with job_failures("raw"):
            began_s = self._clock()
            batches = iter(self._job.loader)
            first = next(batches)
            self.first_batch_s = self._clock() - began_s
            ranks.begin_steps(1 + sum(1 for _ in batches))
            self._warm_up(first, *[first] * _WARM_STEPS)

    def _measure(self, number: int) -> Block:
        loader = self._job.loader
        self._synchronize()
        self._ranks.share()  # all begin at the same time
        began_s, batches = self._clock(), 0
        for batch in loader:
            self._step(self._job.transfer(batch))
            batches += 1
        self._synchronize()
        samples = min(len(loader.sampler), batches * (loader.batch_size or 1))  # type: ignore[arg-type]  # has a length
        return Block(number, samples, self._clock() - began_s, batches)

    def close(self) -> None:
        """Stop the workers."""
        iterator, self._job.loader._iterator = self._job.loader._iterator, None
        try:
            if iterator is not None:
                iterator._shutdown_workers()  # type: ignore[attr-defined]  # of one with persistent workers
        finally:
            super().close()


def open_lane(
    pipeline: Pipeline, budget_s: float, *, whole_epochs: bool, loop: Loop | None = None, ranks: Ranks | None = None
) -> Lane:
    """Start a variant of the job; its workers rest afterwards.

    Raises:
        LoopEnded: The script whose loop it is has ended.
        MeasurementError: It does not run.
    """
    ranks = ranks or Ranks()
    return EpochLane(pipeline, loop, ranks) if whole_epochs else RunningLane(pipeline, budget_s, loop, ranks)


OpenLane = Callable[..., Lane]


class Lanes:
    """Opens lanes when they are asked for, keeps them until others are, and measures them in turns.

    Args:
        given: The job.
        opener: Starts a variant of the job.
        budget_s: Time of the whole tuning, which limits how long a lane may take to start.
        clock: Seconds from any beginning.
        left_s: Time left for all blocks.
        others: Reads what other processes take of the cores.
        ranks: Those of the job.
    """

    def __init__(
        self, given: Pipeline, opener: OpenLane, budget_s: float, clock: Clock = time.perf_counter,
        left_s: Callable[[], float] = lambda: math.inf, others: OtherLoad | None = None, ranks: Ranks | None = None,
    ) -> None:  # fmt: skip
        self.given, self._open, self._budget_s, self._clock = given, opener, budget_s, clock
        self._ranks = ranks or Ranks()
        self._others = others or OtherLoad(read_process_times=self._ranks.process_times)
        self.cores = usable_cores()
        self._order, self._turns = OrderOfArms[Settings](seed=0), Turns(clock, self._visit, left_s)
        self._in_turns: dict[Settings, Lane] = {}
        self._round, self._whole_epochs = 0, False
        self._start_s: dict[tuple[Settings, bool], float] = {}
        self._visit_s: dict[tuple[Settings, bool], float] = {}
        """What the last visit to a lane took, with its switch and its warm-up."""
        self.running: Lane | None = None
        """The lane whose turn it is, or which failed in it."""
        self._lanes: dict[tuple[Settings, bool], Lane] = {}
        self.shown: dict[Settings, Lane] = {}
        """The lane of each variant that has run; what a lane has shown outlives it."""
        self.setup_s: dict[Settings, float] = {}
        """The first time that they ran: what is compiled is compiled once in a process."""
        self.peak_bytes: dict[Settings, int | None] = {}
        """The most memory of the device that their last block has needed; None on a CPU."""

    def open(self, settings: Settings, *, whole_epochs: bool) -> Lane:
        """The lane of these settings.

        Raises:
            Exception: The variant does not run, whatever the reason.
        """
        key = (settings, whole_epochs)
        if key not in self._lanes:
            began_s = self._clock()
            self._lanes[key] = self._ranks.start(
                lambda: self._open(build(self.given, settings), self._budget_s, whole_epochs=whole_epochs)
            )
            self._start_s[key] = self._clock() - began_s
            self.setup_s.setdefault(settings, self._lanes[key].setup_s)
        return self._lanes[key]

    def keep(self, *kept: Settings, whole_epochs: bool = False) -> None:
        """Close all lanes but those of some settings."""
        with ExitStack() as closing:  # all of them, also where one fails
            for key in [key for key in self._lanes if key[0] not in kept or key[1] is not whole_epochs]:
                closing.callback(self._lanes.pop(key).close)

    def stats(self, settings: Settings) -> Lane:
        """The lane that shows what is known of a variant; where it failed, that of the job as it was given."""
        return self.shown.get(settings, self.shown[()])

    # --- what blocks cost ----------------------------------------------------------------------------------

    def open_given(self) -> None:
        """Open the job as it was given, and learn what a visit to it takes."""
        lane = self.shown[()] = self.open((), whole_epochs=False)
        for number in range(_FIRST_VISITS):
            began_s = self._clock()
            self._ranks.block(lane, 0)
            self._visit_s[(), False] = self._clock() - began_s
            if number == 0 and self._visit_s[(), False] > _LONG_VISIT_S:
                break

    def start_s(self, settings: Settings, *, whole_epochs: bool = False) -> float:
        """What opening a lane takes: as it did the last time, else as for the job as it was given."""
        return self._start_s.get((settings, whole_epochs), self._start_s[(), False])

    def visit_s(self, settings: Settings, epoch_s: float | None = None) -> float:
        """What a visit to a lane takes: as it did the last time, else as for the job as it was given.

        Args:
            epoch_s: What an epoch takes, where whole ones are measured.
        """
        known = self._visit_s.get((settings, epoch_s is not None))
        return known if known is not None else self._visit_s[(), False] if epoch_s is None else epoch_s

    # --- blocks in turns -----------------------------------------------------------------------------------

    def in_turns(
        self, *settings: Settings, whole_epochs: bool, known: Sequence[Sequence[Block]] = ()
    ) -> Iterator[tuple[list[Block], ...]]:
        """Yield the blocks so far of the lanes of these settings, after each round.

        Args:
            settings: Of the lanes.
            whole_epochs: Each block is an epoch.
            known: Blocks of earlier rounds, which these follow; as many of each lane.

        Raises:
            Exception: A variant does not run, whatever the reason.
        """
        self._in_turns = {each: self.open(each, whole_epochs=whole_epochs) for each in settings}
        self._whole_epochs = whole_epochs
        kept: Blocks[Settings] = Blocks()
        for each, blocks in zip(settings, known, strict=False):
            for number, block in enumerate(blocks, 1):
                kept.add(each, replace(block, round=number))
        for self._round in itertools.count(1 + len(known[0] if known else ())):
            self._turns.round(self._order.next_round(settings), kept)
            yield tuple(kept.blocks[each] for each in settings)

    def _visit(self, settings: Settings, _: int | None) -> Visit:
        self.running = lane = self._in_turns[settings]
        began_s = self._clock()
        self._others.start()
        block = self._ranks.block(lane, self._round)
        cores = self._ranks.most(self._others.stop())
        seconds = self._visit_s[settings, self._whole_epochs] = self._clock() - began_s
        self.running, self.peak_bytes[settings] = None, lane.peak_device_bytes
        return Visit(block, seconds - block.seconds, StealTime(cores * seconds, cores / self.cores))

    @property
    def others_cores(self) -> float:
        """How many cores others kept busy in blocks that count."""
        return self._turns.repeats.stolen_share * self.cores
