"""What is no DataLoader, as one that the experiments can be run on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _DatasetKind


class Stream(IterableDataset[Any]):
    """Items that are batches already.

    Args:
        batches: Iterated again when it has ended.
    """

    own_loader = False
    """The DataLoader around it is ours: no setting of it is the user's."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __reduce__(self) -> tuple[Any, ...]:  # for workers that are spawned: nobody finds its class by a name
        return _stream, (type(self).__name__, type(self).__mro__[1], self.batches)


class LentDataset(Stream):
    """What an iterator of PyTorch's goes through that is no dataset by its class; it is asked for all else."""

    own_loader = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "batches":
            raise AttributeError(name)
        return getattr(self.batches, name)


def stream_loader(batches: Iterable[Any]) -> DataLoader[Any]:
    """Return a DataLoader that gives the batches as they are, from the main process."""
    # What is diagnosed is called what the user calls it.
    return DataLoader(_stream(type(batches).__name__, Stream, batches), batch_size=None, collate_fn=as_it_is)


def _stream(name: str, kind: type[Stream], batches: Iterable[Any]) -> Stream:
    made: Stream = type(name, (kind,), {})(batches)
    return made


def lent_dataset(loader: Any) -> Any:
    """Return the dataset of what an iterator of PyTorch's was made for, of one of its two kinds.

    fastai's loader hands over an object that is its own dataset; its name is that of the dataset behind it.
    """
    dataset = loader.dataset
    if loader._dataset_kind != _DatasetKind.Iterable or isinstance(dataset, IterableDataset):
        return dataset
    behind = [one.dataset for one in vars(dataset).values() if one is not dataset and hasattr(one, "dataset")]
    return _stream(type([*behind, dataset][0]).__name__, LentDataset, dataset)


def lent_loader(loader: Any, dataset: Any) -> DataLoader[Any]:
    """Return a DataLoader like what an iterator of PyTorch's was made for, which has what that asks of a loader.

    Args:
        loader: No DataLoader.
        dataset: As of `lent_dataset`.
    """
    order: dict[str, Any] = {"batch_size": getattr(loader, "batch_size", 1) if loader._auto_collation else None}
    if loader._dataset_kind == _DatasetKind.Map:
        order = {"batch_size": None, "sampler": loader._index_sampler}
        if loader._auto_collation:
            order = {"batch_sampler": loader._index_sampler}
    context = loader.multiprocessing_context if loader.num_workers else None
    workers = {
        "prefetch_factor": loader.prefetch_factor,
        "multiprocessing_context": context if isinstance(context, BaseContext) else None,
        "persistent_workers": loader.persistent_workers,
    }
    return DataLoader(
        dataset,
        **order,
        **(workers if loader.num_workers else {}),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
    )


def as_it_is(batch: Any) -> Any:
    """Return a batch that nobody has to collate."""
    return batch
