"""Batches that come from no DataLoader, as one that the experiments can be run on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset[Any]):
    """Items that are batches already.

    Args:
        batches: Is iterated anew when it has come to its end.
    """

    own_loader = False
    """The DataLoader around it is ours: no setting of it is the user's."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def stream_loader(batches: Iterable[Any]) -> DataLoader[Any]:
    """Return a DataLoader that gives the batches as they are, from the main process."""
    # What is diagnosed is called what the user calls it.
    kind = type(type(batches).__name__, (Stream,), {})
    return DataLoader(kind(batches), batch_size=None, collate_fn=as_it_is)


def as_it_is(batch: Any) -> Any:
    """Return a batch that nobody has to collate."""
    return batch
