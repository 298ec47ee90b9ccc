"""litdata: a StreamingDataset keeps one transform or a list of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader

from bottleneck.job.recipes.interface import FoundCallable, Recipe, attributes, entries


class LitData(Recipe):
    """Streaming datasets of litdata."""

    name = "litdata"
    packages = ("litdata",)
    complete = True

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the transforms."""
        transform = attributes(holder).get("transform")
        if callable(transform):
            yield FoundCallable(("transform",), "augment")
        for path, member in entries(transform, ("transform",)):
            if callable(member):
                yield FoundCallable(path, "augment")

    def adopt(self, dataset: Any) -> Any:
        """Return a plain DataLoader for a StreamingDataLoader, which only counts and wants litdata's own class."""
        if not isinstance(dataset, DataLoader) or type(dataset).__name__ != "StreamingDataLoader":
            return dataset
        plain: DataLoader[Any] = object.__new__(DataLoader)
        plain.__dict__.update(vars(dataset))
        return plain
