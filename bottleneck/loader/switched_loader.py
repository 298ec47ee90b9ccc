"""The user's DataLoader, rebuilt once around thin proxies and switched while it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from multiprocessing import connection, resource_sharer
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from bottleneck.job.cuts import CutSite
from bottleneck.job.handles import find_handles
from bottleneck.loader import modes
from bottleneck.loader.clone import clone_loader, held_iterators
from bottleneck.loader.hang_watch import HangWatch
from bottleneck.loader.observe.file_watch import NotedFiles
from bottleneck.loader.observe.observation import Observation
from bottleneck.loader.observe.stack_sampler import SampledStacks
from bottleneck.loader.record.change_watch import Change
from bottleneck.loader.record.faults import Fault
from bottleneck.loader.record.plan import Plan, Report, with_copies
from bottleneck.loader.request_order import RequestOrder
from bottleneck.loader.shutdown import disarm, drain, give_up, stop_workers
from bottleneck.loader.worker.engine import Engine
from bottleneck.loader.worker.mailbox import Control
from bottleneck.loader.worker.worker_facts import WorkerFacts
from bottleneck.loader.worker_death import describe_deaths, died_of_unknown

_PATIENCE_S = 1.0
"""How long workers may take to finish what they are doing when the loader is stopped."""


class LoaderEnded(Exception):
    """The loader gave no batch, also when it was started anew.

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
        seed: Seed for checking recordings.
        hang_s: Seconds without a batch after which the workers count as hung.
        sample_rate_hz: How often stacks are sampled for a profile; None: there will be none.
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
        sample_rate_hz: float | None = None,
        notes_files: bool = False,
        checking_s: float = math.inf,
    ) -> None:
        self.num_workers = loader.num_workers
        self.iterable = isinstance(loader.dataset, IterableDataset)
        self.sites = sites
        self._has_timeout = bool(loader.timeout)
        self._passes_tokens = hands_on_batches(loader)
        self._control = Control(self.num_workers)
        self._engine = Engine(
            loader.dataset,
            loader.collate_fn,
            self._control,
            sites,
            seed,
            batched=loader.batch_sampler is not None,
            iterable=self.iterable,
            passes_tokens=self._passes_tokens,
        )
        self._engine.checking_s = checking_s
        self._engine.sample_rate_hz = sample_rate_hz
        self._engine.handles = self.handles = find_handles(loader.dataset) if self.num_workers else ()
        self._engine.notes_files = notes_files and loader.num_workers > 0
        self._order = RequestOrder(loader, self._control, iterable=self.iterable)
        self._loader = clone_loader(loader, self._engine, self._order, hang_s)
        self._held = held_iterators(loader)
        self._iterator: Iterator[Any] | None = None
        self._received = 0
        self._plan: Plan | None = None
        self._faults_read: dict[int, int] = {}
        self._shared_handles = _shares_handles()
        self.workers: tuple[int, ...] = ()
        """Process ids of the workers."""
        self._watch: HangWatch | None = None

    # --- running -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; they begin with real batches at once."""
        for name in self._held:
            self._loader.__dict__[name] = DataLoader.__iter__(self._loader)
        self._iterator = iter(self._loader)
        self._notice_workers()

    def _notice_workers(self) -> None:
        self.workers = self._find_workers()
        if self.workers and self._watch is None:  # only now: its thread must not be there when they are forked
            iterator = self._worker_iterator()
            self._watch = HangWatch(lambda: give_up(iterator), iterator._timeout)

    def _find_workers(self) -> tuple[int, ...]:
        return tuple(worker.pid for worker in getattr(self._worker_iterator(), "_workers", ()))

    def lose_patience_after(self, seconds: float) -> None:
        """Take workers that give no batch for so long as hung, unless the user's loader has a timeout of its own."""
        iterator = self._worker_iterator()
        if not self._has_timeout and getattr(iterator, "_timeout", None):
            iterator._timeout = seconds
            if self._watch is not None:
                self._watch.limit_s = seconds

    def _worker_iterator(self) -> Any:
        """PyTorch's own iterator, also where a subclass of the loader wraps it in one of its own."""
        inner = getattr(self._loader, "_iterator", None)
        return inner if inner is not None else self._iterator

    def next_batch(self) -> tuple[Any, int]:
        """Return the next batch as the loader gives it, and its number of samples.

        Raises:
            LoaderEnded: If there is none.
            Exception: What the loader raises when a worker fails.
        """
        if self._iterator is None:
            self.start()
        watch = self._watch
        try:
            if watch is not None:
                watch.waiting_since_s = time.monotonic()
            batch = self._receive()
        except Exception as error:
            if watch is not None and watch.gave_up:
                raise RuntimeError(f"DataLoader timed out after {watch.limit_s:g} seconds") from error
            if died_of_unknown(error):
                raise self._explain_death(error) from error
            raise
        finally:
            if watch is not None:
                watch.waiting_since_s = None
        size = self._order.sizes[self._received] if self._received < len(self._order.sizes) else 0
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
        workers = getattr(self._worker_iterator(), "_workers", ())
        ended = connection.wait([worker.sentinel for worker in workers], timeout=1.0)
        dead = [worker for worker in workers if worker.sentinel in ended]
        return RuntimeError(describe_deaths(dead)) if dead else error

    def arrived(self) -> int | None:
        """Return how many batches workers have delivered that nobody has taken; None where that cannot be seen."""
        iterator = self._worker_iterator()
        try:
            in_queue = iterator._data_queue.qsize()
            if iterator._data_queue is not iterator._worker_result_queue:  # on the way to the thread that pins them
                in_queue += iterator._worker_result_queue.qsize()
            # Out of turn: taken from the queue already, and kept beside the number of the worker.
            out_of_turn = sum(len(info) > 1 for info in iterator._task_info.values())
        except (AttributeError, TypeError, NotImplementedError):  # another loader, or macOS, which cannot count
            return None
        return int(in_queue) + out_of_turn

    def next_has_arrived(self) -> bool:
        """Whether the next batch has surely been delivered: in order, others may lie ready while it is waited for."""
        iterator = self._worker_iterator()
        try:
            next_one = iterator._task_info.get(iterator._rcvd_idx, ())
        except AttributeError:
            return False
        return len(next_one) > 1 or self.is_ahead()

    def is_ahead(self) -> bool:
        """Whether the workers have surely delivered everything that they were asked for."""
        arrived = self.arrived()
        return arrived is not None and arrived >= self._order.sent - self._received

    @property
    def mode(self) -> int:
        """The loader stages that work for real at present."""
        return self._control.mode

    def switch(self, mode: int) -> None:
        """Change which stages work for real, and throw away every batch that was asked for before.

        Batches in flight are thrown away also when the mode stays the same: what piled up while nobody asked would
        come for free.
        """
        self._control.begin_generation()
        self._control.mode = mode
        self.discard_in_flight()

    def discard_in_flight(self) -> None:
        """Receive and drop the batches that have been asked for so far."""
        if not self.num_workers:
            return
        iterator = self._worker_iterator()
        asked_for = getattr(iterator, "_send_idx", 0)
        # A worker without a share of a stream never answers what it was asked for: nothing could be counted there.
        may_stay_away = self.iterable and self._passes_tokens and asked_for > 0
        if not may_stay_away:
            for _ in range(self._order.sent - self._received):
                self.next_batch()
        if getattr(self._loader, "in_order", True) and not may_stay_away:
            return
        # Out of order, a quick worker's new batch may have come before a slow one's old batch.
        while iterator._send_idx >= asked_for and _is_due(iterator, asked_for):
            self.next_batch()

    def rest(self) -> None:
        """Leave the workers with nothing to do."""
        self.switch(modes.REST if self._passes_tokens else modes.HANDOFF)

    def use_plan(self, plan: Plan) -> None:
        """Let the workers rest, then hand the plan to all of them.

        In this order: a worker that knows the plan must not record any more.
        """
        self._plan = plan
        self._order.set_blank_sizes(plan.batch_sizes)
        self.rest()
        self._control.publish_plan(plan)

    def reports(self) -> list[Report]:
        """Return what the workers have found out while recording."""
        return list(self._control.read_reports().values())

    def observations(self) -> list[Observation]:
        """Return what the workers have seen while observing."""
        return list(self._control.read_observations().values())

    def facts(self) -> list[WorkerFacts]:
        """Return what the workers have told of themselves; each does so with its first observation."""
        return list(self._control.read_facts().values())

    def stacks(self) -> dict[int, SampledStacks]:
        """Return the stacks that workers have sampled, by worker; they leave them when the mode asks for no more."""
        return self._control.read_stacks()

    def files(self) -> list[NotedFiles]:
        """Return the files that workers have opened; they leave them when the mode asks for no more."""
        return list(self._control.read_files().values())

    def check_recordings(self) -> None:
        """Let the workers compare what they have recorded with what it was; `new_faults` tells what came of it."""
        self.switch(modes.HANDOFF | modes.CHECK)
        for _ in range(max(1, self.num_workers)):
            self.next_batch()

    def copy_changed(self, changes: Iterable[Change]) -> None:
        """Serve copies from now on of what has been changed in place."""
        assert self._plan is not None
        for change in changes:
            self._plan = with_copies(self._plan, change.what, change.site)
        self._control.publish_plan(self._plan)

    def new_faults(self) -> list[Fault | Change]:
        """Return what the workers could not serve since this was asked last, without repetition."""
        new: dict[Fault | Change, None] = {}
        for worker, faults in self._control.read_new_faults().items():
            new |= dict.fromkeys(faults[self._faults_read.get(worker, 0) :])
            self._faults_read[worker] = len(faults)
        return list(new)

    # --- a pool of batches ---------------------------------------------------------------------------------

    @property
    def queue_length(self) -> int:
        """Batches that are asked for ahead."""
        return self.num_workers * (self._loader.prefetch_factor or 0)

    def fill_pool(self, batches: int) -> int:
        """Ask for the same batches again and again from now on, and return how many there are."""
        return self._order.fill_pool(batches)

    def next_requests(self, batches: int) -> list[Any]:
        """Return what the workers would be asked for next, for workers of another loader."""
        return self._order.next_requests(batches)

    def release_pool(self) -> None:
        """Go on in the user's order."""
        self._order.pool = None

    def trim_pool(self, batches: int) -> None:
        """Keep the first batches of the pool only."""
        if self._order.pool is not None:
            self._order.pool.trim(batches)

    def restart_pool(self, at: int = 0) -> None:
        """Begin again with a batch of the pool; the loader must be at rest."""
        if self._order.pool is not None:
            self._order.pool.restart(at)

    @property
    def user_dataset(self) -> Any:
        """The user's dataset, in this process."""
        return self._engine.user_dataset

    @property
    def pool_position(self) -> int:
        """Batches of the pool that were asked for since its last restart."""
        return self._order.pool.position if self._order.pool is not None else 0

    @property
    def pool_received(self) -> int:
        """The first so many batches of the pool were received since its restart, if all in flight are of it."""
        if not getattr(self._loader, "in_order", True):
            return 0  # some before the last one received may be missing
        return max(0, self.pool_position - (self._order.sent - self._received))

    @property
    def passes_tokens(self) -> bool:
        """Whether a batch may be left out of what the loader gives."""
        return self._passes_tokens

    @property
    def choosing_s_per_batch(self) -> float | None:
        """What the user's sampler takes in this process to choose the samples of a batch; None: not known."""
        return self._order.choosing_s_per_batch

    def allow_caches(self, worker_bytes: int) -> None:
        """Say what the caches of each worker may take, before anything is recorded; until then it is nothing."""
        self._control.worker_cache_bytes = worker_bytes

    @property
    def first_choice_s(self) -> float | None:
        """What the user's sampler took to begin, and to choose its first batch [s]; None: it was not asked."""
        return self._order.first_choice_s

    @property
    def permutation_length(self) -> int | None:
        """How many indices the user's own loader permutes for each epoch, which this one does not; None: none."""
        return self._order.permutation_length

    @property
    def cache_bytes(self) -> int:
        """Bytes in the caches of all workers together."""
        return self._control.cache_bytes()

    # --- stopping ------------------------------------------------------------------------------------------

    def close(self, *, patience_s: float = _PATIENCE_S) -> None:
        """Stop the workers without noise and free everything; safe to call at any time, and twice.

        A worker that exits while a large pickle is under way aborts with a message of C++'s on standard error,
        so the queues are emptied first. Workers that do not finish in time are killed, which is silent.
        """
        iterator, self._iterator = self._worker_iterator(), None
        try:
            # First of all: from then on no death of a worker interrupts what follows.
            disarm(iterator)
            if self._watch is not None:
                self._watch.stop()
            if hasattr(iterator, "_workers"):
                self._order.stopped = True
                self._control.mode = modes.STOP
                drained = drain(iterator, patience_s)
                stop_workers(iterator, kill=not drained)
        finally:
            del iterator
            self._loader.__dict__.update(dict.fromkeys(self._held), _iterator=None)
            self._engine.close()
            self._control.close()
            self._watch = None  # it holds the iterator
            if not self._shared_handles:
                resource_sharer.stop(timeout=1.0)


def hands_on_batches(loader: DataLoader[Any]) -> bool:
    """Whether a loader gives what its workers return as it is, so that a batch may be left out of it."""
    owner = next(cls for cls in type(loader).__mro__ if "__iter__" in vars(cls))
    return owner is DataLoader or owner.__module__.startswith("torchdata.stateful_dataloader.")


def _is_due(iterator: Any, asked_for: int) -> bool:
    """Whether a batch with a number below some other one is still to come."""
    return any(
        number < asked_for and (len(info) > 1 or iterator._workers_status[info[0]])
        for number, info in iterator._task_info.items()
    )


def _shares_handles() -> bool:
    """Whether this process serves handles to others, in a thread that starts with the first one: a tensor as index."""
    return getattr(getattr(resource_sharer, "_resource_sharer", None), "_address", None) is not None
