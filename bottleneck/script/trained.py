"""What a loop trains, found by the optimizers that made a step in it: for its facts, and to be put back."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn


class Optimizers:
    """Several optimizers as one, to be looked at and put back together; a loop steps each by itself.

    Args:
        optimizers: At least two.
    """

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self.optimizers = list(optimizers)
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]

    @staticmethod
    def of(optimizers: Sequence[Any]) -> Any:
        """Return the one optimizer that there is, all as one, or None."""
        return Optimizers(optimizers) if len(optimizers) > 1 else next(iter(optimizers), None)

    def step(self) -> None:
        """Step all of them."""
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        """Clear the gradients of all of them."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()


def models_of(optimizers: Sequence[Any]) -> nn.Module | None:
    """Return the outermost module that holds what the optimizers step, or all of them as one; None where none does.

    No loop says which its model is. So all objects of the process are looked at, once.
    """
    stepped = {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}
    return models_with(lambda parameter: id(parameter) in stepped)


def models_with(is_trained: Callable[[nn.Parameter], bool]) -> nn.Module | None:
    """Return the outermost module that holds such parameters, or all of them as one; None where none does."""
    # type() and not isinstance(): lazy proxies answer isinstance() by loading what they stand for.
    modules: list[nn.Module] = [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
    inner = {id(child) for module in modules for child in vars(module).get("_modules", {}).values()}
    outer = [module for module in modules if id(module) not in inner and "_modules" in vars(module)]
    models = [module for module in outer if any(map(is_trained, module.parameters()))]
    return models[0] if len(models) == 1 else nn.ModuleList(models) if models else None
