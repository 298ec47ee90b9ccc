"""torchvision: datasets keep their transforms in attributes that are found anyway; these are the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bottleneck.job.recipes.interface import FoundCallable, KeyPath, Recipe, attributes, listed_callables


class Torchvision(Recipe):
    """Datasets and transforms of torchvision, v1 and v2."""

    name = "torchvision"
    packages = ("torchvision",)

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield what `wrap_dataset_for_transforms_v2` does to an item before it is transformed."""
        if callable(attributes(holder).get("_wrapper")):
            yield FoundCallable(("_wrapper",), "load")

    def members(self, transform: Any) -> Iterable[KeyPath]:
        """Yield those of Compose, RandomApply and the like, and the pair that a dataset's `transforms` stands for."""
        yield from listed_callables(transform, "transforms")
        for name in ("transform", "target_transform"):  # StandardTransform
            if callable(attributes(transform).get(name)):
                yield (name,)
