"""The user's DataLoader, rebuilt once and switched while it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import connection, resource_sharer
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from bottleneck.job.cuts import CutSite
from bottleneck.job.inspect import find_handles
from bottleneck.job.loader_classes import can_skip_batches
from bottleneck.job.torch_loading import (
    are_at_work,
    arrived_in,
    forget_iterator,
    has_workers,
    held_iterators,
    is_due_before,
    kept_iterator,
    next_has_arrived,
    requested_by,
    set_timeout,
    timeout_of,
    workers_of,
)
from bottleneck.loader import modes
from bottleneck.loader.clone import clone_loader
from bottleneck.loader.control import Control, Fault
from bottleneck.loader.engine import Engine
from bottleneck.loader.order import RequestOrder
from bottleneck.loader.processes import HangWatch, describe_deaths, died_of_unknown, end_workers, kill_hung_workers
from bottleneck.loader.recording.plan import Plan

_LONGER_AT_MOST = 2
"""Times its planned length that a block may get."""
_QUEUES_BEFORE = 4
"""Queues of batches that may be asked for before it: one is thrown away, and then the job runs until steady."""
_PATIENCE_S = 1.0
"""Seconds that workers may take to finish their work when the loader is stopped."""


class LoaderEnded(Exception):
    """The loader gave no batch, also when it was started again.

    Attributes:
        received: Batches that it had given before; where there are some, its data can be gone through only once.
    """

    def __init__(self, received: int = 0) -> None:
        super().__init__()
        self.received = received


class SwitchedLoader:
    """Runs the user's loader with any set of stages real and the rest served from caches.

    Workers start once. `switch` changes one integer in shared memory; `discard_in_flight` then throws away what
    was asked for before.

    Args:
        loader: The user's loader; it is not changed.
        sites: Where its dataset could be cut.
        hang_s: Seconds without a batch after which the workers count as hung.
        at_start: Called in each worker when it starts.
        notes_files: The files that the workers open will be asked for.
        checking_s: What each worker may take to check that its recordings replay.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        sites: tuple[CutSite, ...],
        seed: int,
        hang_s: float,
        *,
        at_start: Callable[[], object] | None = None,
        notes_files: bool = False,
        checking_s: float = math.inf,
    ) -> None:
        self.can_skip_batches = can_skip_batches(loader)
        """A batch may be left out of what the loader gives."""
        control = Control(loader.num_workers)
        self.handles = find_handles(loader.dataset) if loader.num_workers else ()
        engine = Engine(
            loader.dataset,
            loader.collate_fn,
            control,
            sites,
            seed,
            batched=loader.batch_sampler is not None,
            iterable=isinstance(loader.dataset, IterableDataset),
            can_skip_batches=self.can_skip_batches,
            checking_s=checking_s,
            at_start=at_start,
            handles=self.handles,
            notes_files=notes_files and loader.num_workers > 0,
        )
        self.order = RequestOrder(loader, control, iterable=engine.iterable)
        """Requests to the workers."""
        self.num_workers = loader.num_workers
        self.iterable = engine.iterable
        self._has_timeout = bool(loader.timeout)
        self._engine = engine
        self._control = control
        self._loader = clone_loader(loader, engine, self.order, hang_s)
        self._held = held_iterators(loader)
        self._iterator: Iterator[Any] | None = None
        self._received = 0
        # In a thread that starts with the first one that is shared, such as a tensor as an index.
        self._shared_handles = getattr(getattr(resource_sharer, "_resource_sharer", None), "_address", None) is not None
        self.workers: tuple[int, ...] = ()
        """Process ids of the workers."""
        self._watch: HangWatch | None = None
        self._plan: Plan | None = None
        self._faults_read: dict[int, int] = {}
        # What the workers leave for this process.
        self.reports = control.reports.read
        self.observations = control.observations.read
        self.observations_by_worker = control.observations.by_worker
        self.examinations = control.examinations.read
        self.facts = control.facts.read
        self.made = control.made.read
        self.snapshots = control.snapshots.read
        self.tallies = control.tallies
        self.forget_batches = control.forget_batches
        self.files = control.files.read

    # --- workers and their batches ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; they begin with real batches at once."""
        for name in self._held:
            self._loader.__dict__[name] = DataLoader.__iter__(self._loader)
        self._iterator = iter(self._loader)
        self._notice_workers()

    def _notice_workers(self) -> None:
        self.workers = tuple(worker.pid for worker in workers_of(self._worker_iterator()))
        if self.workers and self._watch is None:  # only now: its thread must not be there when they are forked
            iterator = self._worker_iterator()
            self._watch = HangWatch(lambda: kill_hung_workers(iterator), timeout_of(iterator) or math.inf)

    @property
    def idle_workers(self) -> list[int]:
        """The workers that have ended without a batch: they have no share of the stream."""
        at_work, made = are_at_work(self._worker_iterator()), self.observations_by_worker()
        return [worker for worker, works in enumerate(at_work) if not works and worker not in made]

    def set_timeout(self, seconds: float) -> None:
        """Take workers that give no batch for so long as hung, unless the user's loader has its own timeout."""
        iterator = self._worker_iterator()
        if not self._has_timeout and timeout_of(iterator):
            set_timeout(iterator, seconds)
            if self._watch is not None:
                self._watch.limit_s = seconds

    def _worker_iterator(self) -> Any:
        """PyTorch's own iterator, even if a subclass of the loader wraps it in its own."""
        inner = kept_iterator(self._loader)
        kept = held_iterators(self._loader) if inner is None else ()
        return vars(self._loader)[kept[0]] if kept else self._iterator if inner is None else inner

    def next_batch(self) -> tuple[Any, int]:
        """Return the next batch as the loader gives it, and its number of samples; `LoaderEnded` if there is none."""
        if self._iterator is None:
            self.start()
        watch = self._watch
        try:
            if watch is not None:
                watch.waiting_since_s = time.monotonic()
            batch = self._receive()
        except Exception as error:
            if watch is not None and watch.hung:
                raise RuntimeError(f"DataLoader timed out after {watch.limit_s:g} seconds") from error
            if died_of_unknown(error):
                raise self._explain_death(error) from error
            raise
        finally:
            if watch is not None:
                watch.waiting_since_s = None
        size = self.order.sizes[self._received] if self._received < len(self.order.sizes) else 0
        self._received += 1
        if self.num_workers and not self.workers:  # a subclass whose iterator is a generator starts them late
            self._notice_workers()
        return batch, size

    def _receive(self) -> Any:
        assert self._iterator is not None
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = iter(self._loader)
            try:
                return next(self._iterator)
            except StopIteration:
                raise LoaderEnded(self._received) from None
        except (OSError, EOFError) as error:
            raise self._explain_death(error) from error

    def _explain_death(self, error: Exception) -> Exception:
        """Return an error that says how a worker died, also while it was handing a tensor over; else the same one."""
        workers = workers_of(self._worker_iterator())
        ended = connection.wait([worker.sentinel for worker in workers], timeout=1.0)
        dead = [worker for worker in workers if worker.sentinel in ended]
        return RuntimeError(describe_deaths(dead)) if dead else error

    def arrived(self) -> int | None:
        """Return how many batches have been delivered and not been taken; None if unknown."""
        return arrived_in(self._worker_iterator())

    def next_has_arrived(self) -> bool:
        """Return True if the next batch has certainly been delivered: in order, others may lie ready while it is waited
        for."""
        is_ready = next_has_arrived(self._worker_iterator())
        return is_ready is not None and (is_ready or self.is_ahead())

    def is_ahead(self) -> bool:
        """True if the workers have certainly delivered everything that they were asked for."""
        arrived = self.arrived()
        return arrived is not None and arrived >= self.order.sent - self._received

    # --- switching -----------------------------------------------------------------------------------------

    @property
    def mode(self) -> int:
        return self._control.mode

    def switch(self, mode: int) -> None:
        """Change which stages work for real, and throw away every batch that was asked for before.

        Batches in flight are thrown away also when the mode stays the same: what has piled up would come
        for free.
        """
        self._control.generation += 1
        self._control.mode = mode
        self.discard_in_flight()

    def switch_real(self, extra: int = 0) -> None:
        """Make everything real, with further bits of the mode, and hand nothing over where batches may be left out."""
        self.switch((modes.ALL & ~modes.HANDOFF if self.can_skip_batches else modes.ALL) | extra)

    def discard_in_flight(self) -> None:
        """Receive and drop the batches that have been asked for so far."""
        if not self.num_workers:
            return
        iterator = self._worker_iterator()
        asked_for = requested_by(iterator)
        # A worker without a share of a stream never answers what it was asked for: nothing could be counted there.
        may_stay_away = self.iterable and self.can_skip_batches and asked_for > 0
        if not may_stay_away:
            for _ in range(self.order.sent - self._received):
                self.next_batch()
        if getattr(self._loader, "in_order", True) and not may_stay_away:
            return
        # Out of order, a quick worker's new batch may have come before a slow one's old batch.
        while requested_by(iterator) >= asked_for and is_due_before(iterator, asked_for):
            self.next_batch()

    def begin_epoch_within(self, batches: int) -> None:
        """Begin the user's next epoch now, if it might begin in a block of that many batches or on the way to it."""
        self.order.begin_epoch_within(_LONGER_AT_MOST * batches + _QUEUES_BEFORE * self.queue_length)

    def rest(self) -> None:
        """Leave the workers with nothing to do."""
        self.switch(modes.REST if self.can_skip_batches else modes.HANDOFF)

    def use_plan(self, plan: Plan) -> None:
        """Let the workers rest, then hand the plan to all of them.

        In this order: a worker that knows the plan must not record any more.
        """
        self._plan = plan
        self.order.set_blank_sizes(plan.batch_sizes)
        self.rest()
        self._control.publish_plan(plan)

    def changed_recordings(self) -> list[str]:
        """Let each worker check what it has recorded; return what of it is no longer what was recorded."""
        self.switch(modes.HANDOFF | modes.CHECK)
        for _ in range(max(1, self.num_workers)):
            self.next_batch()
        return sorted(set().union(*self._control.changed.read()))

    def serve_batches_themselves(self) -> None:
        """Serve recorded batches without a copy from now on: the job does not change them; without workers only."""
        if self._plan is not None and not self.num_workers:
            self._plan = replace(self._plan, copy_batches=False)
            self._control.publish_plan(self._plan)

    def new_faults(self) -> list[Fault]:
        """Return what the workers could not serve since this was asked last, without repetition."""
        new: dict[Fault, None] = {}
        for worker, faults in self._control.read_new_faults().items():
            new |= dict.fromkeys(faults[self._faults_read.get(worker, 0) :])
            self._faults_read[worker] = len(faults)
        return list(new)

    # --- a pool of batches ---------------------------------------------------------------------------------

    @property
    def queue_length(self) -> int:
        """Batches that are asked for ahead."""
        return self.num_workers * (self._loader.prefetch_factor or 0)

    def restart_pool(self, at: int = 0) -> None:
        """Begin again with a batch of the pool; the loader must be at rest."""
        self.order.pool_position = at

    @property
    def user_dataset(self) -> Any:
        return self._engine.user_dataset

    @property
    def works_ahead(self) -> bool:
        """True if batches may be made in threads or processes of the user's code, even while the job asks for none."""
        return not getattr(type(self.user_dataset), "own_loader", True)

    @property
    def pool_received(self) -> int:
        """Batches of the pool that were received since its restart, if all in flight are of it."""
        if not getattr(self._loader, "in_order", True):
            return 0  # some before the last one received may be missing
        return max(0, self.order.pool_position - (self.order.sent - self._received))

    def allow_caches(self, worker_bytes: int) -> None:
        """Say what the caches of each worker may take, before anything is recorded; until then it is nothing."""
        self._control.worker_cache_bytes = worker_bytes

    @property
    def cache_bytes(self) -> int:
        return self._control.cache_bytes()

    def close(self) -> None:
        """Stop the workers without noise and free everything; safe to call at any time, and twice."""
        iterator, self._iterator = self._worker_iterator(), None
        try:
            if has_workers(iterator):
                self.order.stopped = True
                self._control.mode = modes.STOP
                end_workers(iterator, _PATIENCE_S)
        finally:
            self._engine.stop()  # before anything that may fail: the cuts are in the user's own dataset
            if self._watch is not None:
                self._watch.stop()
                self._watch = None  # it holds the iterator
            del iterator
            forget_iterator(self._loader)
            self._control.close()
            if not self._shared_handles:
                resource_sharer.stop(timeout=1.0)
