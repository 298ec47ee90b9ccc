"""The user's DataLoader, copied around thin proxies of its dataset and collate function, and the copy's processes."""

from __future__ import annotations

import contextlib
import gc
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, _utils, get_worker_info
from torch.utils.data.dataloader import _BaseDataLoaderIter

from bottleneck.job.replaced import replace_function
from bottleneck.job.users_code import text_of
from bottleneck.loader import modes
from bottleneck.loader.engine import Engine
from bottleneck.loader.order import RequestOrder
from bottleneck.loader.snapshots import snapshot_interval
from bottleneck.loader.user_code import UserCodeError, describe_failure, find_failure


class _Forwarding:
    """Answers for attributes of the dataset that it replaces, for loaders that look at theirs."""

    engine: Engine

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "engine":
            raise AttributeError(name)
        return getattr(self.engine.user_dataset, name)


class MapProxy(_Forwarding, Dataset[Any]):
    """Stands in for a map-style dataset; fetches whole batches, as the loader's fetcher does."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __getitem__(self, index: Any) -> Any:
        return self.engine.fetch(index)

    def __getitems__(self, indices: Any) -> Any:
        return self.engine.fetch(indices)

    def __len__(self) -> int:
        return len(self.engine.user_dataset)


class IterableProxy(_Forwarding, IterableDataset[Any]):
    """Stands in for an iterable dataset, and never ends."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __iter__(self) -> Iterator[Any]:
        return self.engine.iterate()


class _Resumable:
    """Gives the state of the user's dataset to a loader that asks its dataset for it; nothing is ever resumed."""

    engine: Engine

    def state_dict(self) -> dict[str, Any]:
        return self.engine.state_dict()

    def load_state_dict(self, _: Any) -> None:
        """Exist, as the protocol demands."""


class ResumableMapProxy(_Resumable, MapProxy):
    """Stands in for a map-style dataset in a loader that takes snapshots."""


class ResumableIterableProxy(_Resumable, IterableProxy):
    """Stands in for an iterable dataset in a loader that takes snapshots."""


class CollateProxy:
    """Stands in for the collate function."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __call__(self, samples: Any) -> Any:
        return self.engine.collate(samples)


class WorkerInit:
    """Runs the user's `worker_init_fn` in a worker that looks like the user's own, then cuts the dataset.

    The user's function finds its own dataset in `get_worker_info().dataset`, not our proxy.
    """

    def __init__(self, worker_init_fn: Callable[[int], None] | None) -> None:
        self._worker_init_fn = worker_init_fn

    def __call__(self, worker: int) -> None:
        # Ctrl-C reaches the whole process group; the main process stops the workers, in order.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ignore_hang_ups()
        info = get_worker_info()
        engine = info.dataset.engine  # type: ignore[union-attr]  # in a worker
        if engine.at_start is not None:
            engine.at_start()
        object.__setattr__(info, "dataset", engine.user_dataset)
        try:
            if self._worker_init_fn is not None:
                self._worker_init_fn(worker)
        except BaseException as error:  # noqa: BLE001 - anything it raises ends the worker, and is reported
            described = describe_failure(error, "worker_init_fn", index=None, worker=worker, mode=modes.ALL)
            raise UserCodeError(described) from None
        engine.user_dataset = info.dataset  # type: ignore[union-attr]  # in a worker
        engine.start()


def collect_device_garbage() -> None:
    """Collect what lies on a CUDA device in cycles: CUDA aborts a worker, forked later, that would collect it."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's own
        gc.collect()


def ignore_hang_ups() -> None:
    """In a worker: say nothing when the main process hangs up while a tensor is handed over, as it does at Ctrl-C.

    A thread of `multiprocessing.resource_sharer` hands tensors over, and passes what it runs into to `sys.excepthook`.
    """

    def show_others(show: Callable[..., None]) -> Callable[..., None]:
        return lambda kind, *details: None if issubclass(kind, ConnectionError | EOFError) else show(kind, *details)

    replace_function(sys, "excepthook", show_others)


_RESUMING = {"next_iter_state": None, "_initial_iter_for_state_dict": False}


def clone_loader(loader: DataLoader[Any], engine: Engine, order: RequestOrder, hang_s: float) -> DataLoader[Any]:
    """Copy a loader, subclass and attributes included, around our proxies."""
    state: dict[str, Any] = {
        "dataset": _proxy_for(loader)(engine),
        "collate_fn": CollateProxy(engine),
        "worker_init_fn": WorkerInit(loader.worker_init_fn),
        "persistent_workers": loader.num_workers > 0,
        "_IterableDataset_len_called": None,  # our stream is longer than the user's, and needs no warning
    }
    # One that can be resumed would skip what it gave before.
    state |= {name: start for name, start in _RESUMING.items() if name in loader.__dict__}
    return _copy_loader(loader, order, hang_s, state)


def _proxy_for(loader: DataLoader[Any]) -> Callable[[Engine], Dataset[Any]]:
    if snapshot_interval(loader) is None:
        return IterableProxy if isinstance(loader.dataset, IterableDataset) else MapProxy
    return ResumableIterableProxy if isinstance(loader.dataset, IterableDataset) else ResumableMapProxy


def clone_for_one_start(loader: DataLoader[Any], requests: Any, hang_s: float) -> DataLoader[Any]:
    """Copy a loader unchanged, but for the requests to its workers; they end with its iterator."""
    return _copy_loader(loader, requests, hang_s, {"persistent_workers": False})


def _copy_loader(loader: DataLoader[Any], requests: Any, hang_s: float, state: dict[str, Any]) -> DataLoader[Any]:
    """Copy a loader past `__init__`: a subclass may have another signature. Its workers are started next."""
    collect_device_garbage()
    clone: DataLoader[Any] = object.__new__(type(loader))
    clone.__dict__.update(loader.__dict__)
    # One that keeps its workers by holding an iterator must not share it with the clone.
    clone.__dict__.update(dict.fromkeys(held_iterators(loader)), _iterator=None)
    clone.__dict__["batch_sampler" if loader.batch_sampler is not None else "sampler"] = requests
    if loader.num_workers > 0 and not loader.timeout:
        clone.__dict__["timeout"] = hang_s
    clone.__dict__.update(state)
    return clone


def keeps_workers(loader: DataLoader[Any]) -> bool:
    """Return True if workers live from epoch to epoch, by an argument or by an iterator that the loader keeps."""
    return bool(loader.persistent_workers or held_iterators(loader))


def held_iterators(loader: DataLoader[Any]) -> list[str]:
    """Names of the attributes in which a subclass of the loader keeps an iterator of PyTorch's."""
    state = loader.__dict__.items()
    return [name for name, value in state if isinstance(value, _BaseDataLoaderIter) and name != "_iterator"]


def can_skip_batches(loader: DataLoader[Any]) -> bool:
    """Return True if a loader gives what its workers return unchanged, so that a batch may be left out of it."""
    owner = next(cls for cls in type(loader).__mro__ if "__iter__" in vars(cls))
    return owner is DataLoader or owner.__module__.startswith("torchdata.stateful_dataloader.")


# --- its processes ------------------------------------------------------------------------------------------

_MAX_GRACE_S = 5.0
"""PyTorch's own timeout, where it works, goes first by so much at most."""


class HangWatch:
    """Calls a function once, from a separate thread, when a wait takes longer than `limit_s`."""

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
        grace_s = min(_MAX_GRACE_S, self.limit_s)
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


def detach_sigchld(iterator: Any) -> None:
    """Keep the loader's SIGCHLD handler from raising when workers end, at any place in this process."""
    if getattr(iterator, "_worker_pids_set", False):
        _utils.signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]  # torch's own
        iterator._worker_pids_set = False


def drain(iterator: Any, patience_s: float) -> bool:
    """Receive batches in flight until nothing is left; return True if that succeeded in time."""
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


def _kill(worker: Any) -> None:
    if worker.is_alive():
        with contextlib.suppress(ProcessLookupError):
            worker.kill()


def stop_workers(iterator: Any, *, kill: bool) -> None:
    """Let the workers end, and close the queues; those that do not end are killed on request."""
    if kill:
        _kill_workers(iterator)
        for worker in iterator._workers:
            worker.join(timeout=5)
    else:
        # Stopped processes hear neither the request to end nor the SIGTERM that torch sends then.
        for worker in iterator._workers:
            with contextlib.suppress(psutil.Error):
                if psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED:
                    _kill(worker)
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
            worker.join = worker.is_alive = lambda *_, **__: False
    for queue in (*iterator._index_queues, iterator._worker_result_queue):
        queue.close()
        feeder = getattr(queue, "_thread", None)
        if feeder is not None:
            feeder.join(timeout=1)


def end_workers(iterator: Any, patience_s: float) -> None:
    """End the workers without noise; those that do not finish in time are killed, which is silent.

    A worker that exits while a large pickle is under way aborts with a message of C++'s on standard error, so that the
    queues are emptied first.
    """
    # First of all: from then on no death of a worker interrupts what follows.
    detach_sigchld(iterator)
    stop_workers(iterator, kill=not drain(iterator, patience_s))


_UNKNOWN = "exited unexpectedly"
_EXIT_CODE_S = 1.0
"""Between the end of a process and its exit code there may be a moment."""


@dataclass(frozen=True)
class Death:
    """The end of a worker.

    Attributes:
        signal: The name of the signal that killed it, such as `SIGKILL`; None if none did, or it is not known.
        status: Its exit status, if it ended on its own and that is known.
    """

    signal: str | None = None
    status: int | None = None


def died_of_unknown(error: BaseException) -> bool:
    """Return True if an exception says that workers ended, but not how."""
    text = text_of(error)
    return text.startswith("DataLoader worker") and text.endswith(_UNKNOWN)


def describe_deaths(dead: Iterable[BaseProcess]) -> str:
    """Say of workers that have ended how, in PyTorch's words.

    Args:
        dead: At least one; the first is the one that is described, as the others may have died of its death.
    """
    workers = list(dead)
    workers[0].join(_EXIT_CODE_S)
    code = workers[0].exitcode
    how = "" if code is None else f": {_name(-code)}" if code < 0 else f": status {code}"
    return f"DataLoader worker (pid(s) {', '.join(str(worker.pid) for worker in workers)}) {_UNKNOWN}{how}"


def find_death(text: str) -> Death | None:
    """Read how a worker ended from the text of PyTorch's exception, or of our own; None if it describes no such end."""
    if "DataLoader worker" not in text:
        return None
    by_signal = re.search(r"killed by signal: (.+?)\.(\s|$)", text)
    if by_signal is not None:
        return Death(signal=_DESCRIBED.get(by_signal[1], by_signal[1]))
    unexpected = re.search(rf"{_UNKNOWN}(?:(?:: status| with exit code) (\d+)|: (\S+))?", text)
    if unexpected is None:
        return None
    return Death(unexpected[2], int(unexpected[1]) if unexpected[1] else None)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # such as the real-time signals
        return f"signal-{number}"


_DESCRIBED = {signal.strsignal(number): number.name for number in reversed(signal.Signals)}
