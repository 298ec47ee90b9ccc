"""Classes of loaders besides PyTorch's DataLoader, and what sets them apart.

| class | known by | what it does |
|:--|:--|:--|
| accelerate's `DataLoaderShard` and the like | `base_dataloader` | wraps a DataLoader |
| torchdata's `StatefulDataLoader` | its module | gives batches unchanged, resumes, takes snapshots |
| timm's `MultiEpochsDataLoader`, ultralytics' `InfiniteDataLoader` | their names | keep their workers |
| timm's and PyTorch Geometric's `PrefetchLoader` | `job/wrapping.py` | work on each batch of a DataLoader |
| litdata's `StreamingDataLoader`, webdataset's `WebLoader` | `job/recipes.py` | hold a dataset that is described |
| other subclasses with an `__iter__` | | may change batches |
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from bottleneck.job.torch_loading import held_iterators

_STATEFUL = "torchdata.stateful_dataloader"
SNAPSHOT_INTERVAL = "snapshot_every_n_steps"
"""Argument and attribute of a loader that takes snapshots."""
_RESUMING = {"next_iter_state": None, "_initial_iter_for_state_dict": False}
"""Attributes of a loader that resumes where another one has stopped, and their values at the beginning."""
_KEEP_WORKERS = ("MultiEpochsDataLoader", "InfiniteDataLoader")
"""Classes of timm and ultralytics that keep their workers by keeping an iterator, and pass batches on unchanged."""
_NO_CODE_OF_THE_USERS = ("torch", "torchdata", "builtins")


def wrapped_by(loader: Any) -> DataLoader[Any] | None:
    """Return the DataLoader that an object of a framework wraps; None if it wraps none."""
    inner = getattr(loader, "base_dataloader", None)
    return inner if isinstance(inner, DataLoader) else None


def can_skip_batches(loader: DataLoader[Any]) -> bool:
    """Return True if a loader gives what its workers return unchanged, so that a batch may be left out of it."""
    owner = next(cls for cls in type(loader).__mro__ if "__iter__" in vars(cls))
    return owner is DataLoader or owner.__module__.startswith(f"{_STATEFUL}.")


def keeps_workers(loader: DataLoader[Any]) -> bool:
    """Return True if workers live from epoch to epoch, by an argument or by an iterator that the loader keeps."""
    return bool(loader.persistent_workers or held_iterators(loader))


def only_keeps_workers(loader: DataLoader[Any]) -> bool:
    """Return True if a loader's class is a DataLoader with persistent workers in all but its name."""
    return type(loader).__name__ in _KEEP_WORKERS


def from_the_beginning(loader: DataLoader[Any]) -> dict[str, Any]:
    """Return the attributes with which a copy of a loader does not skip what the loader gave before."""
    return {name: start for name, start in _RESUMING.items() if name in loader.__dict__}


def snapshot_interval(loader: DataLoader[Any]) -> int | None:
    """Return the number of batches in an interval between snapshots; None if workers take none."""
    interval = getattr(loader, SNAPSHOT_INTERVAL, None)
    return interval if loader.num_workers and isinstance(interval, int) and interval > 0 else None


def is_pytorchs(sampler: Any, cls: type) -> bool:
    """Return True if a sampler is of a class of PyTorch, or of its resumable twin in torchdata."""
    kind = type(sampler)
    return kind is cls or (kind.__module__ == f"{_STATEFUL}.sampler" and kind.__name__ == cls.__name__)


def is_users_sampler(sampler: Any) -> bool:
    """Return True if a sampler runs code of the user, or of a framework."""
    return type(sampler).__module__.partition(".")[0] not in _NO_CODE_OF_THE_USERS
