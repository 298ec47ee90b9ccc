"""Every backward pass: what all trainings have in common, whoever wrote their optimizer."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable
from typing import Any

import torch

from bottleneck.script.trained import models_with

_LONG = 100
"""Backward passes without a step of an optimizer of PyTorch's, after which none is waited for although there is one:
gradients of so many batches are hardly ever gathered."""


class BackwardPasses:
    """Counts the backward passes while it is entered: `Tensor.backward` comes by `torch.autograd.backward`, too.

    Args:
        passed: Is called after each one, in the thread that asked for it.
    """

    def __init__(self, passed: Callable[[], None]) -> None:
        self._passed = passed
        self._originals: dict[str, Callable[..., Any]] = {}
        self.count = 0
        self._inside: set[int] = set()
        self._has_optimizer: bool | None = None

    def __enter__(self) -> BackwardPasses:
        self._originals = {name: getattr(torch.autograd, name) for name in ("backward", "grad")}
        for name, original in self._originals.items():
            setattr(torch.autograd, name, self._noted(original))
        return self

    def __exit__(self, *_: object) -> None:
        for name, original in self._originals.items():
            setattr(torch.autograd, name, original)

    def _noted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def pass_back(*arguments: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(*arguments, **named)
            thread = threading.get_ident()
            # A mode of torch's calls it again by its name; checkpointing, within a backward pass.
            if thread in self._inside or torch._C._current_graph_task_id() != -1:
                return original(*arguments, **named)
            self._inside.add(thread)
            try:
                found = original(*arguments, **named)
            finally:
                self._inside.discard(thread)
            self.count += 1
            self._passed()
            return found

        return pass_back

    @property
    def may_be_steps(self) -> bool:
        """Whether no optimizer of PyTorch's is to be waited for. All objects are looked at for one, once."""
        if self._has_optimizer is None:
            # type() and not isinstance(): lazy proxies answer isinstance() by loading what they stand for.
            self._has_optimizer = any(issubclass(type(one), torch.optim.Optimizer) for one in gc.get_objects())
        return not self._has_optimizer or self.count >= _LONG

    def models(self) -> torch.nn.Module | None:
        """What has a gradient now, as of `models_of`."""
        return models_with(lambda parameter: parameter.grad is not None)
