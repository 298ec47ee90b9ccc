"""albumentations: datasets of the user's call its transforms; only their members need a recipe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bottleneck.job.recipes.interface import KeyPath, Recipe, listed_callables


class Albumentations(Recipe):
    """Transforms of albumentations."""

    name = "albumentations"
    packages = ("albumentations",)

    def members(self, transform: Any) -> Iterable[KeyPath]:
        """Yield those of Compose, OneOf, SomeOf, Sequential and RandomOrder."""
        return listed_callables(transform, "transforms")
