"""timm: its datasets keep a `transform`, which is found anyway, and a reader, which is no function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bottleneck.job.recipes.interface import KeyPath, Recipe, listed_callables


class Timm(Recipe):
    """Datasets and transforms of timm."""

    name = "timm"
    packages = ("timm",)

    def members(self, transform: Any) -> Iterable[KeyPath]:
        """Yield the operations of RandAugment and AugMix, of which each call takes some."""
        return listed_callables(transform, "ops")
