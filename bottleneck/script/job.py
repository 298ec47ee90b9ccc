"""The job of a loop, inferred from its steps: its model, its device, and the parts of a batch that it moves there.

Parts that the loop needs on the host stay there: labels that it counts, texts that it tokenizes, images that it shows.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import nn, overrides
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.replaced import replace_function
from bottleneck.job.step import move_to_device, resolve_device
from bottleneck.loader import trees
from bottleneck.measure.caches import in_own_containers, tensors_in
from bottleneck.measure.device import devices_of
from bottleneck.measure.options import Loop
from bottleneck.measure.training import loss_in
from bottleneck.results.records import Warning
from bottleneck.results.warnings.job import input_in_loop
from bottleneck.script.losses import gradient_scalers

if TYPE_CHECKING:
    from bottleneck.script.iterators import Source

_MODES: Any = overrides  # whose stack of modes has no annotations
_ONTO_ANOTHER = frozenset({"to", "type_as", "copy_", "__setitem__"})
"""Functions that move a tensor to the device of another one."""
_IN_THE_LOOP = frozenset({"numpy", "__array__", "pin_memory"})
"""Functions of loops that continue to prepare their batch on the host."""
_SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}
"""Replacements for types that MPS lacks."""
_ON_THE_HOST = _IN_THE_LOOP | {
    "tolist", "item", "__bool__", "__int__", "__float__", "__complex__", "__index__", "__dlpack__",
}  # fmt: skip
"""Functions that fail for a tensor on a device, or would make the loop wait for it."""


class Moves(overrides.TorchFunctionMode):
    """Record of a loop's calls on the tensors of its batches, and on tensors computed from these on the host.

    It notes calls between `begin` and `end`, in one thread. An object that contains tensors, such as a graph, is one
    part of its batch: it moves as a whole.
    """

    def __init__(self) -> None:
        super().__init__()
        self._leaves: int | None = None
        # For tensors in host memory: the positions of their origins among the leaves of a batch.
        self._origins: Any = WeakTensorKeyDictionary()
        self._moved: set[int] = set()
        self._needed: set[int] = set()
        self._together: set[frozenset[int]] = set()
        """Groups of parts that were combined, which must be on one device."""
        self._called: set[str] = set()
        self._has_trained = False
        """True after the backward pass of this batch: later calls, such as saving pictures, prepare nothing."""
        self._has_tensors = True
        self.arrive_on_device = False
        """True if the batches are on the device already."""
        self.are_written = False
        """True if the loop writes into the containers and objects of its batches."""

    @property
    def moves_any(self) -> bool:
        """True if the loop was seen to move a part of a batch off the host, even one that it also needs there."""
        return bool(self._moved)

    def begin(self, batch: Any) -> None:
        """Begin to note calls on the tensors of a batch, which is as the loader returned it."""
        leaves = trees.leaves(batch)
        tensors = _tensors(leaves)
        self._has_trained = False
        if self._leaves is None:
            self._leaves = len(leaves)
        if self._leaves == len(leaves):  # in a batch of another structure, positions mean something else
            self._has_tensors = bool(tensors)
            for at, tensor in tensors:
                if _is_on_device(tensor):
                    self.arrive_on_device = True
                else:
                    self._origins[tensor] = frozenset([at])
        self._batch, self._given = batch, [*enumerate(leaves), *tensors]
        _MODES._push_mode(self)

    def end(self) -> None:
        """Stop noting calls until the next `begin`."""
        # Another mode may have been entered since.
        others = [mode for mode in _MODES._get_current_function_mode_stack() if mode is not self]
        while _MODES._get_current_function_mode_stack():
            _MODES._pop_mode()
        for mode in others:
            _MODES._push_mode(mode)
        leaves = trees.leaves(self._batch)
        left = [*enumerate(leaves), *_tensors(leaves)]
        self.are_written |= len(left) != len(self._given) or any(
            now is not then for (_, now), (_, then) in zip(left, self._given, strict=True)
        )
        del self._batch, self._given

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        self._has_trained |= name == "backward"
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        origins = frozenset[int]().union(*(self._origins.get(tensor, ()) for tensor in inputs))
        if origins:
            self._note(name, inputs, origins, result)
        return result

    def _note(self, name: str, inputs: list[torch.Tensor], origins: frozenset[int], result: Any) -> None:
        on_host = [tensor for tensor in inputs if not _is_on_device(tensor)]
        # On the device, parts of the batch could not be used together with a tensor that stays on the host.
        is_needed = any(tensor.dim() and tensor not in self._origins for tensor in on_host)
        if is_needed or name in _ON_THE_HOST:
            self._needed |= origins
        if name in _IN_THE_LOOP and not self._has_trained:
            self._called.add("numpy" if name == "__array__" else name)
        self._together.add(origins)
        # `static[:] = part` returns nothing.
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)] or inputs[:1]
        if not any(map(_is_on_device, made)):
            for tensor in made:
                self._origins[tensor] = origins
        elif len(on_host) == len(inputs) or name in _ONTO_ANOTHER:
            self._moved |= origins

    def learnt(self) -> Transfer:
        """Return a transfer of the same parts of other batches, without those that the loop needs on the host."""
        moved = self._moved - self._needed
        while parted := [group for group in self._together if moved & group and not group <= moved]:
            moved = moved.difference(*parted)
        return Transfer(moved, self._leaves or 0)

    @property
    def in_the_loop(self) -> Warning | None:
        """A warning of input work that the loop seems to do itself; None if none was seen."""
        if self._has_tensors and not self._called:
            return None
        return input_in_loop(sorted(self._called) if self._has_tensors else ())


def _tensors(leaves: Sequence[Any]) -> list[tuple[int, torch.Tensor]]:
    """Return each tensor in the leaves of a batch, with the position of its leaf."""
    return [(at, tensor) for at, leaf in enumerate(leaves) for tensor in tensors_in(leaf)]


def _is_on_device(tensor: torch.Tensor) -> bool:
    return tensor.device.type != "cpu"


class Transfer:
    """A function that moves parts of a batch to the device, as a loop does.

    Args:
        moved: Positions of the parts among the leaves of a batch.
        leaves: Number of leaves in the observed batch.
    """

    def __init__(self, moved: Collection[int], leaves: int) -> None:
        self.moved, self._leaves = frozenset(moved), leaves

    def __call__(self, batch: Any, device: torch.device) -> Any:
        """Return the batch with these parts on the device; a batch of another structure is returned unchanged.

        Objects that move in place are copied before, without their data.
        """
        if not self.moved or len(trees.leaves(batch)) != self._leaves:
            return batch
        at = -1

        def move(leaf: Any) -> Any:
            nonlocal at
            at += 1
            return move_to_device(_as_it_can_lie(leaf, device), device) if at in self.moved else leaf

        return trees.map_leaves(move, batch)


def _as_it_can_lie(leaf: Any, device: torch.device) -> Any:
    """Return a part in a precision that the device supports: a loop converts it for devices such as MPS."""
    if device.type != "mps" or not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.to(_SINGLE.get(leaf.dtype, leaf.dtype))


NO_MOVE = "the loop was not seen to move any part of its batch to the device"
NEEDED = "what the loop moves to the device, it also uses on the CPU: it reads or pins it there"
_THERE_ALREADY = "the batches that the loop gets are on the device already"


class Optimizers:
    """Several optimizers as one, to be inspected and restored together; a loop steps each separately.

    Args:
        optimizers: At least two.
    """

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self.optimizers = list(optimizers)
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]

    @staticmethod
    def of(optimizers: Sequence[Any]) -> Any:
        """Return the only optimizer, all of them as one, or None if there is none."""
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
    """Return the outermost module with parameters of the optimizers, or all such as one; None if there is none.

    A loop does not declare its model. So all objects of the process are searched, once.
    """
    stepped = {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}
    return models_with(lambda parameter: id(parameter) in stepped)


def models_with(is_trained: Callable[[nn.Parameter], bool]) -> nn.Module | None:
    """Return the outermost module with such parameters, or all such modules as one; None if there is none."""
    # type() and not isinstance(): lazy proxies answer isinstance() by loading their object.
    modules: list[nn.Module] = [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
    inner = {id(child) for module in modules for child in vars(module).get("_modules", {}).values()}
    outer = [module for module in modules if id(module) not in inner and "_modules" in vars(module)]
    models = [module for module in outer if any(map(is_trained, module.parameters()))]
    return models[0] if len(models) == 1 else nn.ModuleList(models) if models else None


def describe(
    source: Source, optimizers: tuple[Any, ...], models: Any, loop: Loop, last_loss: Callable[[], Any]
) -> Callable[[Callable[[Any], None]], Pipeline]:
    """Return a function from a loop's train step to its job; note in the loop if it copies its batches.

    Args:
        source: Source of the batches.
        optimizers: Optimizers of the training.
        models: Trained modules.
        loop: The loop.
        last_loss: Returns the loss of the last backward pass.
    """
    moves = source.moves
    transfer = moves.learnt()
    stepped = [one.device for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]]
    devices = [*stepped, *devices_of(models)]
    if devices:
        device: torch.device = devices[0]
    else:  # without a known model, the batches show it
        device = resolve_device(None if moves.moves_any or moves.arrive_on_device else "cpu")
    loop.copies_itself, scalers = True, gradient_scalers()
    if device.type != "cpu" and not transfer.moved:
        loop.not_copied = NEEDED if moves.moves_any else _THERE_ALREADY if moves.arrive_on_device else NO_MOVE

    def fed(step: Callable[[Any], None]) -> Callable[[Any], Any]:
        # The search for what training changes finds the scalers as an argument: nothing else leads to them.
        @functools.wraps(step)
        def train(batch: Any, _scalers: object = scalers) -> Any:
            # Cached batches must not change if the loop writes into its own.
            step(in_own_containers(batch) if moves.are_written else batch)
            return last_loss()

        return train

    return lambda step: Pipeline.from_loader(
        source.loader,
        train_step=fed(step),
        model=models,
        optimizer=Optimizers.of(optimizers),
        device=device,
        to_device=transfer if device.type != "cpu" else None,
    )


_LONG = 100
"""Backward passes without a step of an existing PyTorch optimizer after which no step is expected: gradients are
hardly ever accumulated over more batches."""


class BackwardPasses:
    """A context that counts backward passes: `Tensor.backward` calls `torch.autograd.backward`, too.

    Args:
        passed: Called after each one, in the calling thread, with the tensors at which it began.
    """

    def __init__(self, passed: Callable[[Any], None]) -> None:
        self._passed = passed
        self._replaced = ExitStack()
        self.count = 0
        self.last_loss: torch.Tensor | float | None = None
        """Loss of the last backward pass, without its graph."""
        self._inside: set[int] = set()
        self._has_optimizer: bool | None = None

    def __enter__(self) -> BackwardPasses:
        for name in ("backward", "grad"):
            self._replaced.callback(replace_function(torch.autograd, name, functools.partial(self._noted, name)))
        return self

    def __exit__(self, *_: object) -> None:
        self._replaced.close()

    def _noted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def pass_back(*arguments: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(*arguments, **named)
            thread = threading.get_ident()
            # A torch mode calls it again by its name, checkpointing within a backward pass.
            if thread in self._inside or torch._C._current_graph_task_id() != -1:
                return original(*arguments, **named)
            self._inside.add(thread)
            try:
                found = original(*arguments, **named)
            finally:
                self._inside.discard(thread)
            self.count += 1
            is_backward = name == "backward"
            roots = arguments[0] if arguments else named.get("tensors" if is_backward else "outputs")
            if is_backward:
                self.last_loss = loss_in(roots)
            self._passed(roots)
            return found

        return pass_back

    @property
    def may_be_steps(self) -> bool:
        """True if no PyTorch optimizer is expected to step. All objects are searched for one, once."""
        if self._has_optimizer is None:
            # type() and not isinstance(): lazy proxies answer isinstance() by loading their object.
            self._has_optimizer = any(issubclass(type(one), torch.optim.Optimizer) for one in gc.get_objects())
        return not self._has_optimizer or self.count >= _LONG

    def models(self) -> torch.nn.Module | None:
        """Return the modules with gradients, as `models_of` does."""
        return models_with(lambda parameter: parameter.grad is not None)
