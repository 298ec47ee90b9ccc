"""The rebuilt loader while it runs: its workers, its batches, and its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing import connection, resource_sharer
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from bottleneck.loader import modes
from bottleneck.loader.clone import clone_loader, held_iterators
from bottleneck.loader.hang_watch import HangWatch
from bottleneck.loader.request_order import RequestOrder
from bottleneck.loader.shutdown import detach_sigchld, drain, kill_hung_workers, stop_workers
from bottleneck.loader.worker.control import Control
from bottleneck.loader.worker.engine import Engine
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


class RunningLoader:
    """Starts the workers of a rebuilt loader once, hands out its batches, and stops it cleanly.

    Args:
        loader: The user's loader; it is not changed.
        hang_s: Seconds without a batch after which the workers count as hung.
    """

    def __init__(self, loader: DataLoader[Any], engine: Engine, control: Control, hang_s: float) -> None:
        self.num_workers = loader.num_workers
        self.iterable = isinstance(loader.dataset, IterableDataset)
        self._has_timeout = bool(loader.timeout)
        self._engine, self._control = engine, control
        self.order = RequestOrder(loader, control, iterable=self.iterable)
        """What the workers are asked for."""
        self._loader = clone_loader(loader, engine, self.order, hang_s)
        self._held = held_iterators(loader)
        self._iterator: Iterator[Any] | None = None
        self._received = 0
        self._shared_handles = _shares_handles()
        self.workers: tuple[int, ...] = ()
        """Process ids of the workers."""
        self._watch: HangWatch | None = None

    def start(self) -> None:
        """Start the workers; they begin with real batches at once."""
        for name in self._held:
            self._loader.__dict__[name] = DataLoader.__iter__(self._loader)
        self._iterator = iter(self._loader)
        self._notice_workers()

    def _notice_workers(self) -> None:
        self.workers = tuple(worker.pid for worker in getattr(self._worker_iterator(), "_workers", ()))
        if self.workers and self._watch is None:  # only now: its thread must not be there when they are forked
            iterator = self._worker_iterator()
            self._watch = HangWatch(lambda: kill_hung_workers(iterator), iterator._timeout)

    def set_timeout(self, seconds: float) -> None:
        """Take workers that give no batch for so long as hung, unless the user's loader has a timeout of its own."""
        iterator = self._worker_iterator()
        if not self._has_timeout and getattr(iterator, "_timeout", None):
            iterator._timeout = seconds
            if self._watch is not None:
                self._watch.limit_s = seconds

    def _worker_iterator(self) -> Any:
        """PyTorch's own iterator, also where a subclass of the loader wraps it in one of its own."""
        inner = getattr(self._loader, "_iterator", None)
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
        workers = getattr(self._worker_iterator(), "_workers", ())
        ended = connection.wait([worker.sentinel for worker in workers], timeout=1.0)
        dead = [worker for worker in workers if worker.sentinel in ended]
        return RuntimeError(describe_deaths(dead)) if dead else error

    def arrived(self) -> int | None:
        """Return how many batches have been delivered and not been taken; None where that is unknown."""
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
        return arrived is not None and arrived >= self.order.sent - self._received

    def close(self, *, patience_s: float = _PATIENCE_S) -> None:
        """Stop the workers without noise and free everything; safe to call at any time, and twice.

        A worker that exits while a large pickle is under way aborts with a message of C++'s on standard error,
        so the queues are emptied first. Workers that do not finish in time are killed, which is silent.
        """
        iterator, self._iterator = self._worker_iterator(), None
        try:
            # First of all: from then on no death of a worker interrupts what follows.
            detach_sigchld(iterator)
            if self._watch is not None:
                self._watch.stop()
            if hasattr(iterator, "_workers"):
                self.order.stopped = True
                self._control.mode = modes.STOP
                drained = drain(iterator, patience_s)
                stop_workers(iterator, kill=not drained)
        finally:
            del iterator
            self._loader.__dict__.update(dict.fromkeys(held_iterators(self._loader)), _iterator=None)
            self._control.close()
            self._watch = None  # it holds the iterator
            if not self._shared_handles:
                resource_sharer.stop(timeout=1.0)


def can_skip_batches(loader: DataLoader[Any]) -> bool:
    """Whether a loader gives what its workers return as it is, so that a batch may be left out of it."""
    owner = next(cls for cls in type(loader).__mro__ if "__iter__" in vars(cls))
    return owner is DataLoader or owner.__module__.startswith("torchdata.stateful_dataloader.")


def _shares_handles() -> bool:
    """Whether this process serves handles to others, in a thread that starts with the first one: a tensor as index."""
    return getattr(getattr(resource_sharer, "_resource_sharer", None), "_address", None) is not None
