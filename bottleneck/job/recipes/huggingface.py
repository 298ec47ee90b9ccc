"""Hugging Face datasets: `set_transform` and `with_transform` of map-style ones, `map` of streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bottleneck.job.recipes.interface import FoundCallable, Item, KeyPath, Recipe, attributes, entries


class HuggingFaceDatasets(Recipe):
    """Map-style and iterable datasets; a stream is a chain of steps, each around the one before."""

    name = "Hugging Face datasets"
    packages = ("datasets.arrow_dataset", "datasets.iterable_dataset")  # users call their own modules `datasets`, too
    complete = True

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the transform of a map-style dataset, and the function of a stream's `map`."""
        held = attributes(holder)
        options = held.get("_format_kwargs")
        if isinstance(options, dict) and callable(options.get("transform")):
            yield FoundCallable(("_format_kwargs", Item("transform")), "augment")
        if callable(held.get("function")) and "Filter" not in type(holder).__name__:
            yield FoundCallable(("function",), "augment")

    def datasets(self, holder: Any) -> Iterable[KeyPath]:
        """Yield the steps of a stream."""
        held = attributes(holder)
        for name in ("_ex_iterable", "ex_iterable"):
            if held.get(name) is not None:
                yield (name,)
        for path, _ in entries(held.get("ex_iterables"), ("ex_iterables",)):
            yield path
