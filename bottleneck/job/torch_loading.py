"""PyTorch's private parts of data loading: the only module that reads or replaces them by name.

An iterator here is one of PyTorch's, or of a class like it, which may lack any of these parts: then nothing is known.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader, _utils
from torch.utils.data._utils import signal_handling
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind

BaseIterator = _BaseDataLoaderIter
"""Class of PyTorch's iterators, and of torchdata's."""
DatasetKind = _DatasetKind
"""Kinds of datasets, with the function `create_fetcher` that makes the fetcher of a dataset."""
WORKER_LOOP = "_worker_loop"
"""Name of the function that a worker runs."""
WORKER, QUEUE = 10, 2
"""Positions of `worker_id` and `index_queue` among the arguments of that function."""
_OF_TORCHDATA = "torchdata.stateful_dataloader"
original_worker_loop: Callable[..., None] = _utils.worker._worker_loop
"""PyTorch's function: a spawned worker finds the original here, even if it is replaced in the main process."""


def worker_loops() -> Iterator[tuple[Any, bool]]:
    """Yield the imported modules with the function that workers run, and True for torchdata's."""
    yield _utils.worker, False
    of_torchdata = sys.modules.get(f"{_OF_TORCHDATA}.stateful_dataloader")
    if of_torchdata is not None:
        yield of_torchdata, True


def run_worker_loop(*args: Any, of_torchdata: bool) -> None:
    """Run the original function of a worker; that of torchdata is replaced only where its iterators find it."""
    module = importlib.import_module(f"{_OF_TORCHDATA}.worker") if of_torchdata else None
    loop = original_worker_loop if module is None else getattr(module, WORKER_LOOP)
    loop(*args)


# --- workers ------------------------------------------------------------------------------------------------


def workers_of(iterator: Any) -> Sequence[Any]:
    """Return the worker processes of an iterator; none without workers."""
    return getattr(iterator, "_workers", ())


def has_workers(iterator: Any) -> bool:
    """Return True if an iterator has workers, of which it may have ended all."""
    return hasattr(iterator, "_workers")


def number_of_workers(iterator: Any) -> int:
    """Return the number of workers that an iterator was made with; 0 if unknown."""
    return int(getattr(iterator, "_num_workers", 0))


def are_at_work(iterator: Any) -> Sequence[bool]:
    """Return for each worker whether it still gets requests: that of a stream without further items does not."""
    return getattr(iterator, "_workers_status", ())


def shut_down(iterator: Any) -> None:
    """Let the workers of an iterator end, and wait for them; without workers, do nothing."""
    stop = getattr(iterator, "_shutdown_workers", None)
    if stop is not None:
        stop()


def detach_sigchld(iterator: Any) -> None:
    """Keep the loader's SIGCHLD handler from raising when workers end, at any place in this process."""
    if getattr(iterator, "_worker_pids_set", False):
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]  # from C
        iterator._worker_pids_set = False


def has_sigchld_handler() -> bool | None:
    """Return True if PyTorch has installed its SIGCHLD handler; None if unknown."""
    return getattr(signal_handling, "_SIGCHLD_handler_set", None)


def forget_sigchld_handler() -> None:
    """Let the next loader with workers install its handler again."""
    vars(signal_handling)["_SIGCHLD_handler_set"] = False


def close_queues(iterator: Any) -> None:
    """Close the queues of requests and batches, and end their threads."""
    for queue in (*iterator._index_queues, iterator._worker_result_queue):
        queue.close()
        feeder = getattr(queue, "_thread", None)
        if feeder is not None:
            feeder.join(timeout=1)


def timeout_of(iterator: Any) -> float | None:
    """Return the seconds without a batch after which an iterator raises; None if unknown, 0 if it waits for ever."""
    return getattr(iterator, "_timeout", None)


def set_timeout(iterator: Any, seconds: float) -> None:
    """Let an iterator raise after so many seconds without a batch."""
    iterator._timeout = seconds


# --- batches of an iterator ---------------------------------------------------------------------------------


def dataset_of(iterator: Any) -> Any:
    """Return the dataset that an iterator was made with."""
    return iterator._dataset


def given_by(iterator: Any) -> int:
    """Return the number of batches that an iterator has given in this pass."""
    return int(iterator._num_yielded)


def requested_by(iterator: Any) -> int:
    """Return the number of batches that workers were asked for; 0 without workers."""
    return int(getattr(iterator, "_send_idx", 0))


def number_of_last(iterator: Any) -> int | None:
    """Return the number of the request for the last batch; None if batches do not come in order."""
    return iterator._rcvd_idx - 1 if getattr(iterator, "_in_order", True) else None


def next_has_arrived(iterator: Any) -> bool | None:
    """Return True if the next batch in order lies ready, taken from the queue; None if unknown."""
    try:
        return len(iterator._task_info.get(iterator._rcvd_idx, ())) > 1
    except AttributeError:
        return None


def is_due_before(iterator: Any, number: int) -> bool:
    """Return True if a batch with a lower number is still to come, as may be if they come out of order."""
    statuses = are_at_work(iterator)
    return any(at < number and (len(info) > 1 or statuses[info[0]]) for at, info in iterator._task_info.items())


def arrived_in(iterator: Any) -> int | None:
    """Return the number of batches that were delivered to an iterator and not taken from it; None if unknown."""
    try:
        in_queue = iterator._data_queue.qsize()
        if iterator._data_queue is not iterator._worker_result_queue:  # on the way to the thread that pins them
            in_queue += iterator._worker_result_queue.qsize()
        # Out of turn: taken from the queue already, and kept with the number of the worker.
        out_of_turn = sum(len(info) > 1 for info in iterator._task_info.values())
    except (AttributeError, TypeError, NotImplementedError):  # another loader, or macOS, which cannot count
        return None
    return int(in_queue) + out_of_turn


def drop_batches(iterator: Any) -> None:
    """Release the batches that an iterator whose workers have ended still holds: they may be in pinned memory."""
    getattr(iterator, "_task_info", {}).clear()
    getattr(getattr(iterator, "_data_queue", None), "queue", []).clear()  # of the thread that pins


NO_LENGTH_WARNING = {"_IterableDataset_len_called": None}
"""Attributes of a loader that does not warn of a stream that is longer than its `len`."""


# --- loaders ------------------------------------------------------------------------------------------------


def held_iterators(loader: DataLoader[Any]) -> list[str]:
    """Names of the attributes in which a subclass of the loader keeps an iterator of PyTorch's."""
    state = loader.__dict__.items()
    return [name for name, value in state if isinstance(value, BaseIterator) and name != "_iterator"]


def kept_iterator(loader: DataLoader[Any]) -> Any:
    """Return the iterator of a loader with persistent workers; None if it has none."""
    return getattr(loader, "_iterator", None)


def forget_iterator(loader: DataLoader[Any]) -> None:
    """Let a loader forget its iterator, and those that a subclass keeps."""
    loader.__dict__.update(dict.fromkeys(held_iterators(loader)), _iterator=None)


def is_stream(loader: Any) -> bool:
    """Return True if PyTorch's iterator would iterate over the dataset of a loader, or of an object like one."""
    return bool(loader._dataset_kind == DatasetKind.Iterable)


def order_of(loader: Any) -> dict[str, Any]:
    """Return the arguments of a DataLoader for requests like those of an object that PyTorch iterates like one."""
    if loader._dataset_kind != DatasetKind.Map:
        return {"batch_size": getattr(loader, "batch_size", 1) if loader._auto_collation else None}
    if loader._auto_collation:
        return {"batch_sampler": loader._index_sampler}
    return {"batch_size": None, "sampler": loader._index_sampler}
