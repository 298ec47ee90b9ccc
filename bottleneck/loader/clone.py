"""The user's DataLoader, copied around thin proxies of its dataset and its collate function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torch.utils.data.dataloader import _BaseDataLoaderIter

from bottleneck.loader import modes
from bottleneck.loader.engine import Engine
from bottleneck.loader.order import RequestOrder
from bottleneck.loader.user_code import UserCodeError, describe_failure


class _Forwarding:
    """Answers for attributes of the user's dataset, for loaders that look at theirs."""

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
        import signal

        # Ctrl-C reaches the whole process group; the main process stops the workers, in order.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        info = get_worker_info()
        engine = info.dataset.engine  # type: ignore[union-attr]  # in a worker
        if engine.at_start is not None:
            engine.at_start()
        object.__setattr__(info, "dataset", engine.user_dataset)
        if self._worker_init_fn is not None:
            self._initialise(worker)
        engine.user_dataset = info.dataset  # type: ignore[union-attr]  # in a worker
        engine.start()

    def _initialise(self, worker: int) -> None:
        assert self._worker_init_fn is not None
        try:
            self._worker_init_fn(worker)
        except BaseException as error:  # noqa: BLE001 - anything it raises ends the worker, and is reported
            described = describe_failure(error, "worker_init_fn", index=None, worker=worker, mode=modes.ALL)
            raise UserCodeError(described) from None


_RESUMING = {"next_iter_state": None, "_initial_iter_for_state_dict": False}


def clone_loader(loader: DataLoader[Any], engine: Engine, order: RequestOrder, hang_s: float) -> DataLoader[Any]:
    """Copy a loader, subclass and attributes included, around our proxies."""
    proxy = IterableProxy(engine) if isinstance(loader.dataset, IterableDataset) else MapProxy(engine)
    state: dict[str, Any] = {
        "dataset": proxy,
        "collate_fn": CollateProxy(engine),
        "worker_init_fn": WorkerInit(loader.worker_init_fn),
        "persistent_workers": loader.num_workers > 0,
        "_IterableDataset_len_called": None,  # our stream is longer than the user's, and needs no warning
    }
    # One that can be resumed would skip what it gave before.
    state |= {name: start for name, start in _RESUMING.items() if name in loader.__dict__}
    return _copy_loader(loader, order, hang_s, state)


def clone_for_one_start(loader: DataLoader[Any], requests: Any, hang_s: float) -> DataLoader[Any]:
    """Copy a loader as it is, but for what its workers are asked for; they end with its iterator."""
    return _copy_loader(loader, requests, hang_s, {"persistent_workers": False})


def _copy_loader(loader: DataLoader[Any], requests: Any, hang_s: float, state: dict[str, Any]) -> DataLoader[Any]:
    """Copy a loader past `__init__`: a subclass may have another signature."""
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
    """Whether the workers of a loader go on from epoch to epoch, by its argument or by an iterator that it keeps."""
    return bool(loader.persistent_workers or held_iterators(loader))


def held_iterators(loader: DataLoader[Any]) -> list[str]:
    """Names of the attributes in which a subclass of the loader keeps an iterator of PyTorch's."""
    state = loader.__dict__.items()
    return [name for name, value in state if isinstance(value, _BaseDataLoaderIter) and name != "_iterator"]


def can_skip_batches(loader: DataLoader[Any]) -> bool:
    """Whether a loader gives what its workers return as it is, so that a batch may be left out of it."""
    owner = next(cls for cls in type(loader).__mro__ if "__iter__" in vars(cls))
    return owner is DataLoader or owner.__module__.startswith("torchdata.stateful_dataloader.")
