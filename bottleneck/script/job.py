"""The job that a loop is, as it shows in its steps: what it trains, and on which device."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from bottleneck.job import containers
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import resolve_device
from bottleneck.loader import trees
from bottleneck.measure.device import devices_of
from bottleneck.measure.options import Loop
from bottleneck.script.iterators import Source
from bottleneck.script.moves import Moves

NO_MOVE = "the loop was not seen to move any part of its batch to the device"
NEEDED = "what the loop moves to the device, it also uses on the CPU: it reads or pins it there"
_THERE_ALREADY = "the batches that the loop gets are on the device already"


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


def describe(
    source: Source, optimizers: tuple[Any, ...], models: Any, loop: Loop
) -> Callable[[Callable[[Any], None]], Pipeline]:
    """Return what describes the job of a loop, once its step is known; notes in the loop who copies its batches."""
    models = models_of(optimizers) if optimizers else models
    together = Optimizers.of(optimizers)
    device = _device_of(optimizers) or next(iter(devices_of(models)), None) or _device_without(source)
    transfer = source.moves.learnt()
    loop.copies = True
    if device.type != "cpu" and not transfer.moved:
        loop.not_copied = _why_not_copied(source.moves)
    return lambda step: Pipeline.from_loader(
        source.loader,
        train_step=_with_containers_of_its_own(step) if source.moves.are_written else step,
        model=models,
        optimizer=together,
        device=device,
        to_device=transfer if device.type != "cpu" else None,
    )


def _with_containers_of_its_own(step: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return the step of a loop that puts other things into its batches: those of a cache are to stay as they are."""
    return lambda batch: step(trees.map_leaves(_with_attributes_of_its_own, batch))


def _with_attributes_of_its_own(leaf: Any) -> Any:
    if not trees.is_primitive(leaf) and containers.inside(leaf):  # such as a graph, which moves itself in place
        with contextlib.suppress(Exception):  # any user type may refuse
            return copy.copy(leaf)
    return leaf


def _why_not_copied(moves: Moves) -> str:
    if moves.moves_any:
        return NEEDED
    return _THERE_ALREADY if moves.arrive_on_device else NO_MOVE


def _device_of(optimizers: Iterable[Any]) -> torch.device | None:
    """Where the parameters are that an optimizer steps."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                device: torch.device = parameter.device
                return device
    return None


def _device_without(source: Source) -> torch.device:
    """Where a loop computes of which no model is known, as far as its batches say."""
    is_on_device = source.moves.moves_any or source.moves.arrive_on_device
    return resolve_device(None) if is_on_device else torch.device("cpu")


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
