"""litdata: a StreamingDataset keeps one transform or a list of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bottleneck.pipeline.recipes.interface import FoundCallable, Recipe, attributes, entries


class LitData(Recipe):
    """Streaming datasets of litdata."""

    name = "litdata"
    packages = ("litdata",)
    searches_methods = False

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the transforms."""
        transform = attributes(holder).get("transform")
        if callable(transform):
            yield FoundCallable(("transform",), "augment")
        for path, member in entries(transform, ("transform",)):
            if callable(member):
                yield FoundCallable(path, "augment")
