"""The rebuilt loader while it runs: its workers, its batches, and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import connection, resource_sharer
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from torch.utils.data import DataLoader, IterableDataset, _utils
from torch.utils.data.dataloader import _BaseDataLoaderIter

from bottleneck.loader import modes
from bottleneck.loader.control import Control
from bottleneck.loader.engine import Engine
from bottleneck.loader.order import RequestOrder
from bottleneck.loader.user_code import describe_deaths, died_of_unknown, find_failure

_LONGEST_GRACE_S = 5.0
"""PyTorch's own timeout, where it works, goes first by so much at most."""


class HangWatch:
    """Calls a function once, from a thread of its own, when a wait takes longer than `limit_s`."""

    def __init__(self, on_hang: Callable[[], None], limit_s: float) -> None:
        self.waiting_since_s: float | None = None
        """When the present wait began, by the monotonic clock; None while nothing is waited for."""
        self.limit_s = limit_s
        self.hung = False
        self._on_hang = on_hang
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bottleneck-hang-watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        grace_s = min(_LONGEST_GRACE_S, self.limit_s)
        while not self._stopped.wait(grace_s):
            since_s = self.waiting_since_s
            if since_s is not None and time.monotonic() - since_s > self.limit_s + grace_s:
                self.hung = True
                self._on_hang()
                return

    def stop(self) -> None:
        """End the thread; safe to call twice."""
        self._stopped.set()
        self._thread.join()


def keep_quiet_about_broken_receivers() -> None:
    """Say nothing, in a worker, of a tensor that the main process stopped receiving because it was interrupted.

    Python's own thread that hands tensors over would print a traceback, as if something in the job had failed.
    """
    report = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        by = traceback.tb_frame.f_globals.get("__name__") if traceback is not None else None
        if by != resource_sharer.__name__ or not isinstance(error, (ConnectionError, EOFError)):
            report(kind, error, traceback)

    sys.excepthook = hook


def detach_sigchld(iterator: Any) -> None:
    """Keep the loader's SIGCHLD handler from raising when workers end, wherever this process happens to be."""
    if getattr(iterator, "_worker_pids_set", False):
        _utils.signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]  # torch's own
        iterator._worker_pids_set = False


def drain(iterator: Any, patience_s: float) -> bool:
    """Receive what is in flight until nothing is left; return whether that came off in time."""
    # Receiving blocks without end when a worker stands still while it hands over a tensor.
    watchdog = threading.Timer(patience_s, _kill_workers, (iterator,))
    watchdog.start()
    try:
        return _receive_all(iterator, time.monotonic() + patience_s)
    finally:
        watchdog.cancel()
        watchdog.join()


def _receive_all(iterator: Any, deadline_s: float) -> bool:
    iterator._timeout = 0.1
    while time.monotonic() < deadline_s:
        try:
            next(iterator)
        except StopIteration:
            return True
        except RuntimeError as error:
            if "timed out" not in str(error) and not find_failure(error):
                return False
        except Exception:  # noqa: BLE001 - a failure of the user's code, reported before
            pass
    return False


def kill_hung_workers(iterator: Any) -> None:
    """Kill workers that stand still, so that what waits for them gets an error."""
    detach_sigchld(iterator)
    _kill_workers(iterator)


def _kill_workers(iterator: Any) -> None:
    for worker in iterator._workers:
        _kill(worker)


def _kill_stopped_workers(iterator: Any) -> None:
    """Kill workers that are stopped: they hear neither that they are to end nor the SIGTERM that torch sends then."""
    for worker in iterator._workers:
        with contextlib.suppress(psutil.Error):
            if psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED:
                _kill(worker)


def _kill(worker: Any) -> None:
    if worker.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)


def _has_ended(*_: object, **__: object) -> bool:
    """What a process that was closed answers to `join` and `is_alive`."""
    return False


def stop_workers(iterator: Any, *, kill: bool) -> None:
    """Let the workers end, and close the queues; those that do not end by themselves are killed on request."""
    if kill:
        _kill_workers(iterator)
        for worker in iterator._workers:
            worker.join(timeout=5)
    else:
        _kill_stopped_workers(iterator)
    iterator._shutdown_workers()
    for worker in iterator._workers:
        worker.join(timeout=1)
        if worker.is_alive():
            # A process that is stopped hears nothing of torch's SIGTERM.
            _kill(worker)
            worker.join(timeout=5)
        if not worker.is_alive():
            # Killed between making a piece of shared memory and unlinking it, a worker leaves the file behind.
            for left in Path("/dev/shm").glob(f"torch_{worker.pid}_*"):
                left.unlink(missing_ok=True)
            worker.close()
            # Older versions of torch ask each worker once more as Python ends, and a closed process raises.
            worker.join = worker.is_alive = _has_ended
    for queue in (*iterator._index_queues, iterator._worker_result_queue):
        queue.close()
        feeder = getattr(queue, "_thread", None)
        if feeder is not None:
            feeder.join(timeout=1)


_PATIENCE_S = 1.0
"""How long workers may take to finish what they are doing when the loader is stopped."""


class LoaderEnded(Exception):
    """The loader gave no batch, also when it was started again.

    Attributes:
        received: Batches that it had given before; where there are some, its data can be gone through only once.
    """

    def __init__(self, received: int = 0) -> None:
        super().__init__()
        self.received = received


def held_iterators(loader: DataLoader[Any]) -> list[str]:
    """Names of the attributes in which a subclass of the loader keeps an iterator of PyTorch's."""
    state = loader.__dict__.items()
    return [name for name, value in state if isinstance(value, _BaseDataLoaderIter) and name != "_iterator"]


class RunningLoader:
    """Starts the workers of a rebuilt loader once, hands out its batches, and stops it cleanly.

    Args:
        loader: The user's loader; it is not changed.
        clone: The same, rebuilt around our proxies.
        order: What its workers are asked for.
    """

    def __init__(
        self, loader: DataLoader[Any], clone: DataLoader[Any], engine: Engine, order: RequestOrder, control: Control
    ) -> None:
        self.num_workers = loader.num_workers
        self.iterable = isinstance(loader.dataset, IterableDataset)
        self._has_timeout = bool(loader.timeout)
        self._engine, self._control = engine, control
        self.order = order
        """What the workers are asked for."""
        self._loader = clone
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
            # Out of turn: taken from the queue already, and kept with the number of the worker.
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
            self._engine.stop()
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
