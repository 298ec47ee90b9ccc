"""A variant of the job that is ready to run: its own workers, which rest while another variant has its turn."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader

from bottleneck.job.loader_args import rebuild_loader
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of, step_surroundings
from bottleneck.loader import modes
from bottleneck.measure.batch_cache import BatchCache
from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.device import DeviceMemory, devices_of, make_synchronize
from bottleneck.measure.explain_errors import job_failures
from bottleneck.measure.job_on_device import JobOnDevice
from bottleneck.measure.ladder import Arm
from bottleneck.measure.machine import cpu_seconds
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.start import open_loader, start_workers
from bottleneck.measure.training.losses import is_finite, loss_in
from bottleneck.measure.training.training_state import TrainingState
from bottleneck.results.records import Block

RAW = Arm(modes.ALL, "loader")
_BLOCK_STEPS = 12
_SHORTEST_BLOCK_S, _LONGEST_BLOCK_S = 0.4, 2.0
_WARM_STEPS, _LONG_STEP_S = 2, 2.0
_WAITS_MATTER = 0.1
"""Share of its time that the job waits for batches, below which whoever loads may be idle."""
_BUSY_SHARE = 0.5
"""Share of a core below which whoever loads mostly waits for something else."""


class Lane(Protocol):
    """What blocks are measured on."""

    first_batch_s: float
    """From starting the workers to their first batch."""
    setup_s: float
    """What the first step took beyond a later one."""
    bare_step_s: float
    """What a step takes once its batch is there; 0: not known."""
    step_s: float
    """About how long a step takes, its wait for the batch included."""
    waits_share: float
    """Share of its time that the job waits for batches."""
    workers_wait: bool
    """Whoever loads mostly waits for something else than a core."""
    peak_device_bytes: int | None
    """The most memory of the device that a block has needed."""
    loss_is_finite: bool
    """Each block ended with a loss that is a finite number, as far as the step gives one."""

    def block(self, number: int) -> Block:
        """Measure a block; the workers rest before it and after it."""

    def close(self) -> None:
        """Stop the workers."""


Clock = Callable[[], float]


class _Runs:
    """What both kinds of lanes do: the train step on its device, and the state that goes back before each block."""

    def __init__(self, pipeline: Pipeline, loader: DataLoader[Any], clock: Clock) -> None:
        self._clock, self._device = clock, device_of(pipeline)
        self._job = JobOnDevice.of(pipeline, loader, self._device)
        self._surroundings = partial(step_surroundings, pipeline)
        self._job.move_model()
        used = devices_of(pipeline.model, pipeline.optimizer)
        self._synchronize = make_synchronize(self._device, (self._device, *used))
        roots = {"the model": pipeline.model, "the optimizer": pipeline.optimizer, "the train step": self._job.step}
        self._state = TrainingState(roots, self._synchronize, clock)
        self._memory = DeviceMemory(self._device, pipeline.model, pipeline.optimizer)
        self.first_batch_s = self.setup_s = self.bare_step_s = self.step_s = self.waits_share = 0.0
        self.workers_wait = False
        self.peak_device_bytes: int | None = None
        self.loss_is_finite = True
        self._loss: torch.Tensor | float | None = None

    def _step(self, batch: Any) -> None:
        """Train on a batch that is on the device, and keep the loss, which is looked at after the block."""
        self._loss = loss_in(self._job.step(batch))

    def _timed_step(self, batch: Any) -> float:
        began_s = self._clock()
        self._step(self._job.transfer(batch))
        self._synchronize()
        return self._clock() - began_s

    def _warm_up(self, first: Any, *others: Any) -> None:
        """Run the first steps: what they compile, try and allocate is no part of a block.

        Whoever loads has to rest: CUDA graphs are recorded, and what a thread that pins batches asks of the driver
        at that time would be an error in both.
        """
        first_s = self._timed_step(first)
        later_s: list[float] = []
        for batch in others:
            if not later_s or later_s[0] < _LONG_STEP_S:
                later_s.append(self._timed_step(batch))
        self.bare_step_s = min(later_s)
        self.setup_s = max(0.0, first_s - self.bare_step_s)
        self._state.begin_round()  # kept now: another variant may train the same weights before the first block

    def _begin(self) -> None:
        self._state.begin_round()
        self._memory.begin()

    def _end(self, block: Block) -> Block:
        self.step_s = block.seconds / max(1, block.batches)
        self.loss_is_finite &= self._loss is None or is_finite(self._loss)
        self.peak_device_bytes = self._memory.peak_bytes()
        return block

    def _release(self) -> None:
        """Give the memory back at once, also while somebody still holds the lane: a variant may have its own model."""
        device = self._device
        for name in [name for name in vars(self) if name.startswith("_")]:
            delattr(self, name)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


class RunningLane(_Runs):
    """Runs without end, as in the middle of an epoch.

    Raises:
        MeasurementError: The job fails, here and in its methods.
    """

    def __init__(self, pipeline: Pipeline, budget_s: float, clock: Clock = time.perf_counter) -> None:
        super().__init__(pipeline, pipeline.make_loader(), clock)
        self._ran_s = self._waited_s = self._loading_s = 0.0
        self._loader = open_loader(self._job.loader, (), MeasureOptions(), budget_s)
        try:
            self.first_batch_s = start_workers(self._loader, budget_s, clock).seconds
            nothing = BatchCache([])
            self._bench = Bench(
                loader=self._loader, host=nothing, device=nothing, transfer=self._job.transfer, step=self._step,
                synchronize=self._synchronize, clock=clock, split_blocks=False,
            )  # fmt: skip
            with job_failures("raw"):
                batches = [self._loader.next_batch()[0] for _ in range(1 + _WARM_STEPS)]
                self._loader.rest()
                self._warm_up(*batches)
        except BaseException:
            self.close()
            raise

    def block(self, number: int) -> Block:
        with job_failures("raw"), self._surroundings():
            self._begin()
            self._bench.prepare(RAW)
            if not self.step_s:  # a first block, which says how long one is
                self._bench.measure(RAW, 0, max(1, self._loader.num_workers))
                self.step_s = self._mean_step_s()
            if self._loader.num_workers:  # the others had no start while the clock was read
                self._bench.settle(RAW)
            cpu_s, began_s = self._loading_cpu_s(), self._clock()
            block = self._bench.measure(RAW, number, self._length())
            self._note_waiting(cpu_s, self._clock() - began_s)
            self._loader.rest()
        return self._end(block)

    def _mean_step_s(self) -> float:
        steps = [step_s for _, step_s in self._bench.raw_steps_s]
        return math.fsum(steps) / max(1, len(steps))

    def _length(self) -> int:
        target_s = min(_LONGEST_BLOCK_S, max(_SHORTEST_BLOCK_S, _BLOCK_STEPS * self.step_s))
        return block_batches(RAW, self.step_s, target_s, self._loader.num_workers)

    def _loading_cpu_s(self) -> float:
        """CPU seconds of whoever loads so far."""
        if not self._loader.num_workers:
            return time.process_time()
        return math.fsum(cpu_seconds(pid) or 0.0 for pid in self._loader.workers)

    def _note_waiting(self, cpu_before_s: float, seconds: float) -> None:
        # Added up over blocks: in one of them others may have held up the workers, or the step.
        self._ran_s += seconds
        self._waited_s += math.fsum(wait for wait, _ in self._bench.raw_steps_s)
        self._loading_s += self._loading_cpu_s() - cpu_before_s
        self.waits_share = self._waited_s / max(self._ran_s, 1e-9)
        busy = self._loading_s / (max(1, self._loader.num_workers) * max(self._ran_s, 1e-9))
        # Workers that are ahead wait for their turn, which says nothing.
        self.workers_wait = self.waits_share > _WAITS_MATTER and busy < _BUSY_SHARE

    def close(self) -> None:
        self._loader.close()
        self._release()


class EpochLane(_Runs):
    """Runs whole epochs of the loader as it is: each block is one of them, its start included."""

    def __init__(self, pipeline: Pipeline, clock: Clock = time.perf_counter) -> None:
        loader = pipeline.make_loader()
        # The user's own is left alone: with workers that it keeps, it would keep these.
        super().__init__(pipeline, rebuild_loader(loader, {}) if loader is pipeline.loader else loader, clock)
        with job_failures("raw"):
            began_s = clock()
            batches = iter(self._job.loader)
            first = next(batches)
            self.first_batch_s = clock() - began_s
            for _ in batches:
                pass
            self._warm_up(first, *[first] * _WARM_STEPS)

    def block(self, number: int) -> Block:
        with job_failures("raw"), self._surroundings():
            self._begin()
            self._synchronize()
            began_s, samples, batches = self._clock(), 0, 0
            for batch, size in zip(self._job.loader, self._sizes(), strict=False):
                self._step(self._job.transfer(batch))
                samples, batches = samples + size, batches + 1
            self._synchronize()
            seconds = self._clock() - began_s
        return self._end(Block(number, samples, seconds, batches))

    def _sizes(self) -> Iterator[int]:
        """The samples of each batch of an epoch."""
        loader = self._job.loader
        total, size = len(loader.sampler), loader.batch_size or 1  # type: ignore[arg-type]  # its length is known
        for at in range(0, total, size):
            yield min(size, total - at)

    def close(self) -> None:
        iterator, self._job.loader._iterator = self._job.loader._iterator, None
        if iterator is not None:
            iterator._shutdown_workers()  # type: ignore[attr-defined]  # of one with persistent workers
        self._release()


def open_lane(pipeline: Pipeline, budget_s: float, *, whole_epochs: bool) -> Lane:
    """Start a variant of the job; its workers rest afterwards.

    Raises:
        MeasurementError: It does not run.
    """
    return EpochLane(pipeline) if whole_epochs else RunningLane(pipeline, budget_s)
