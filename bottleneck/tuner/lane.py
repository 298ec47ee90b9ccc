"""Variants of a job that are ready to run: each has its own workers, which rest while another one is measured."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from bottleneck.errors import MeasurementError
from bottleneck.job.loader_args import rebuild_loader
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of, step_surroundings
from bottleneck.job.torch_loading import forget_iterator, kept_iterator, shut_down
from bottleneck.loader import modes
from bottleneck.loader.user_code import PassesThrough
from bottleneck.measure.bench import MAX_STEPS_AHEAD, Bench, block_batches
from bottleneck.measure.caches import BatchCache
from bottleneck.measure.device import DeviceMemory, JobOnDevice, devices_of, make_synchronize
from bottleneck.measure.explain_errors import job_failures
from bottleneck.measure.ladder import Arm
from bottleneck.measure.options import Loop, MeasureOptions
from bottleneck.measure.ranks.lockstep import pacing_for
from bottleneck.measure.start import open_loader, start_workers
from bottleneck.measure.training import TrainingState, is_finite, loss_in
from bottleneck.results.records import Block
from bottleneck.tuner.changes.samples import prepare
from bottleneck.tuner.ranks import Ranks

_RAW = Arm(modes.ALL, "loader")
_BLOCK_STEPS = 8
_MIN_BLOCK_S = 0.4
_MAX_BLOCK_S = 2.0
_WARM_STEPS = 2
_LONG_STEP_S = 2.0
"""Duration of a warm-up step above which no further one is run."""
_MAX_VISITS = 3
"""Tries of a block in which a script ended its epoch or evaluated; in later tries such steps are left out of it."""
_WAITS_MATTER = 0.1
"""Share of its time that a job waits for batches, above which the loader is worth more than the step."""

Clock = Callable[[], float]


class LoopEnded(PassesThrough):
    """Signals that a script's loop, which is the train step, asks for no further batch; the reason is its cause."""


class Lane:
    """A variant on its device, which begins each block from the same state of the training."""

    def __init__(self, pipeline: Pipeline, loader: DataLoader[Any], loop: Loop | None, ranks: Ranks) -> None:
        prepare(loader.dataset)
        self._ranks = ranks
        self._clock = time.perf_counter
        self._device = device_of(pipeline)
        self._loop = loop or Loop()
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
        """Seconds from starting the workers to their first batch."""
        self.setup_s = 0.0
        """Seconds that the first step took longer than a later one."""
        self.bare_step_s = 0.0
        """Seconds per step without waiting for its batch; 0 if unknown."""
        self.step_s = 0.0
        """Approximate seconds per step, its wait for the batch included."""
        self.waiting_share = 1.0
        """Share of the time of all blocks in which the job waited for batches; 1 if unknown."""
        self.peak_device_bytes: int | None = None
        """Peak device memory of the last block [bytes]; None on a CPU."""
        self.loss_is_finite = True
        """True if each block ended with a finite loss, or the step returns none."""
        self.breaks_off = False
        """True if the loop of a script ended an epoch, or evaluated, in a block that counts."""

    @property
    def waits(self) -> bool:
        """True if the job waits for batches for a good part of its time."""
        return self.bare_step_s < (1 - _WAITS_MATTER) * self.step_s

    def block(self, number: int) -> Block:
        """Measure a block; the workers rest before it and after it.

        Raises:
            MeasurementError: The job fails.
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
        """Stop the workers and release the memory at once: a variant may have its own model, and other code may still
        refer to the lane.
        """
        device = self._device
        for name in [name for name in vars(self) if name.startswith("_")]:
            delattr(self, name)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()

    # --- steps ---------------------------------------------------------------------------------------------

    def _step(self, batch: Any) -> None:
        """Train on a batch that is on the device, and keep the loss, which is checked after the block."""
        try:
            self._loss = loss_in(self._job.step(batch))
        except MeasurementError as reason:  # raised by the loop that is fed, not by the user's step
            raise LoopEnded from reason

    def _warm_up(self, first: Any, *others: Any) -> None:
        """Run the first steps, so that compiling, autotuning and allocating are not part of a block.

        Loading must be at rest: while CUDA graphs are recorded, calls to the driver from a thread that pins batches
        would be errors for both.
        """
        self._first = first
        first_s = self._timed_step(first)
        later_s: list[float] = []
        for batch in others:
            if not later_s or self._ranks.most(later_s[0]) < _LONG_STEP_S:
                later_s.append(self._timed_step(batch))
        self.bare_step_s = min(later_s)
        self.setup_s = max(0.0, first_s - self.bare_step_s)
        self._state.begin_round()  # now, because another variant may train the same weights before the first block

    def bare_step(self) -> float:
        """Run one step on the first batch, with the workers at rest, and return its seconds.

        Raises:
            MeasurementError: The job fails.
        """
        with job_failures("raw"), self._surroundings():
            return self._timed_step(self._first)

    def _timed_step(self, batch: Any) -> float:
        """Run one step and return its seconds; if gradients are accumulated, a whole update with the same batch."""
        began_s, batches = self._clock(), self._loop.batches_per_update
        for _ in range(batches):
            self._step(self._job.transfer(batch))
        self._synchronize()
        return (self._clock() - began_s) / batches


class RunningLane(Lane):
    """A lane that runs endlessly, as in the middle of an epoch."""

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
                nothing = BatchCache([])
                self._bench = Bench(
                    loader=self._loader,
                    host=nothing,
                    device=nothing,
                    transfer=self._job.transfer,
                    step=self._step,
                    synchronize=self._synchronize,
                    clock=self._clock,
                    split_blocks=False,
                    loop=self._loop,
                    steps_ahead=0 if self._job.on_cpu else MAX_STEPS_AHEAD,
                    make_pacing=pacing_for(ranks.group, self._job),
                )
                self._warm_up(*batches)
                self._bench.step_s = self.bare_step_s  # shows the bench if loading is slower
        except BaseException:
            self.close()
            raise

    def _measure(self, number: int) -> Block:
        bench, workers = self._bench, self._loader.num_workers
        bench.begin_visit(_RAW, 0, max(1, workers))
        bench.prepare(_RAW)
        if not self.step_s:  # the first block determines the length of the others
            first = bench.measure(_RAW, 0, max(1, workers))
            self.step_s = first.seconds / first.batches
        target_s = min(_MAX_BLOCK_S, max(_MIN_BLOCK_S, _BLOCK_STEPS * self.step_s))
        for tries in range(1, _MAX_VISITS + 1):
            batches = block_batches(_RAW, self.step_s, target_s, workers)
            bench.begin_visit(_RAW, number, batches)
            if workers or not self._ranks.group.is_alone:  # otherwise nothing was prefetched meanwhile
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
        finally:  # the lane is kept for its statistics, its model is not
            super().close()


class EpochLane(Lane):
    """A lane whose blocks are whole epochs of the original loader, the start of the epoch included."""

    def __init__(self, pipeline: Pipeline, loop: Loop | None, ranks: Ranks) -> None:
        loader = pipeline.make_loader()
        # The user's own loader would keep these workers if they are persistent.
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
        self._ranks.share()  # all ranks begin at the same time
        began_s, batches = self._clock(), 0
        for batch in loader:
            self._step(self._job.transfer(batch))
            batches += 1
        self._synchronize()
        samples = min(len(loader.sampler), batches * (loader.batch_size or 1))  # type: ignore[arg-type]  # has a length
        return Block(number, samples, self._clock() - began_s, batches)

    def close(self) -> None:
        """Stop the workers."""
        iterator = kept_iterator(self._job.loader)
        forget_iterator(self._job.loader)
        try:
            shut_down(iterator)
        finally:
            super().close()


def open_lane(
    pipeline: Pipeline, budget_s: float, *, whole_epochs: bool, loop: Loop | None = None, ranks: Ranks | None = None
) -> Lane:
    """Start a variant of the job; its workers are at rest afterwards.

    Raises:
        LoopEnded: The script's loop has ended.
        MeasurementError: The variant does not run.
    """
    ranks = ranks or Ranks()
    return EpochLane(pipeline, loop, ranks) if whole_epochs else RunningLane(pipeline, budget_s, loop, ranks)


OpenLane = Callable[..., Lane]
