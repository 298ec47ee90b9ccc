"""The user's DataLoader, copied around thin proxies of its dataset and collate function."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from bottleneck.job.loader_classes import from_the_beginning, snapshot_interval
from bottleneck.job.torch_loading import NO_LENGTH_WARNING, forget_iterator
from bottleneck.loader import modes
from bottleneck.loader.engine import Engine
from bottleneck.loader.order import RequestOrder
from bottleneck.loader.processes import ignore_hang_ups
from bottleneck.loader.user_code import UserCodeError, describe_failure


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


def clone_loader(loader: DataLoader[Any], engine: Engine, order: RequestOrder, hang_s: float) -> DataLoader[Any]:
    """Copy a loader, subclass and attributes included, around our proxies."""
    state: dict[str, Any] = {
        "dataset": _proxy_for(loader)(engine),
        "collate_fn": CollateProxy(engine),
        "worker_init_fn": WorkerInit(loader.worker_init_fn),
        "persistent_workers": loader.num_workers > 0,
        **NO_LENGTH_WARNING,  # our stream is longer than the user's
    }
    return _copy_loader(loader, order, hang_s, state | from_the_beginning(loader))


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
    forget_iterator(clone)  # one that keeps its workers must not share them with the clone
    clone.__dict__["batch_sampler" if loader.batch_sampler is not None else "sampler"] = requests
    if loader.num_workers > 0 and not loader.timeout:
        clone.__dict__["timeout"] = hang_s
    clone.__dict__.update(state)
    return clone
