"""MONAI: loading is usually the first part of the transform."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bottleneck.job.key_paths import resolve
from bottleneck.job.recipes.interface import FoundCallable, Recipe, attributes, listed_callables

_LOADS = "monai.transforms.io."


class Monai(Recipe):
    """Datasets and transforms of MONAI."""

    name = "MONAI"
    packages = ("monai",)
    complete = True

    def callables(self, holder: Any) -> Iterable[FoundCallable]:
        """Yield the transform, or each part of it where some of them load."""
        transform = attributes(holder).get("transform")
        if not callable(transform):
            return
        parts = [(path, resolve(transform, path)) for path in listed_callables(transform, "transforms")]
        if not any(_loads(part) for _, part in parts):
            yield FoundCallable(("transform",), "augment")
            return
        for path, part in parts:
            yield FoundCallable(("transform", *path), "load" if _loads(part) else "augment")


def _loads(transform: Any) -> bool:
    return any(cls.__module__.startswith(_LOADS) for cls in type(transform).__mro__)
