"""torch.nn: augmentation that is written as a module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from bottleneck.job.recipes.interface import Item, KeyPath, Recipe


class TorchModules(Recipe):
    """Modules of PyTorch."""

    name = "torch.nn"
    packages = ("torch.nn",)

    def members(self, transform: Any) -> Iterable[KeyPath]:
        """Yield those of a Sequential; what other modules do with theirs cannot be known."""
        if isinstance(transform, nn.Sequential):
            for name in transform._modules:
                yield ("_modules", Item(name))
