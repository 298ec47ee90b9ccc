"""The user's DataLoader rebuilt around our proxies, with everything that it was made with."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from bottleneck.loader.proxies import CollateProxy, IterableProxy, MapProxy, WorkerInit
from bottleneck.loader.request_order import RequestOrder
from bottleneck.loader.worker.engine import Engine

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
    return _copy(loader, order, hang_s, state)


def clone_for_one_start(loader: DataLoader[Any], requests: Any, hang_s: float) -> DataLoader[Any]:
    """Copy a loader as it is, but for what its workers are asked for; they end with its iterator."""
    return _copy(loader, requests, hang_s, {"persistent_workers": False})


def _copy(loader: DataLoader[Any], requests: Any, hang_s: float, state: dict[str, Any]) -> DataLoader[Any]:
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
