"""What of a batch a loop moves to the device by itself: seen in real steps, for `device` to have it there already.

What the loop needs on the host stays there: labels that it counts, texts that it tokenizes, images that it shows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import overrides
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from bottleneck.job.step import move_to_device
from bottleneck.loader import trees
from bottleneck.measure.caches import tensors_in

_MODES: Any = overrides  # whose stack of modes has no annotations
_ONTO_ANOTHER = frozenset({"to", "type_as", "copy_", "__setitem__"})
"""What moves a tensor to where another one is."""
_IN_THE_LOOP = frozenset({"numpy", "__array__", "pin_memory"})
"""What a loop calls that goes on with its batch on the host."""
_ON_THE_HOST = _IN_THE_LOOP | {
    "tolist", "item", "__bool__", "__int__", "__float__", "__complex__", "__index__", "__dlpack__",
}  # fmt: skip
"""What fails for a tensor on a device, or would make the loop wait for it."""


class Moves(overrides.TorchFunctionMode):
    """Notes what a loop does with the tensors of its batches, and with what it makes of these on the host.

    It notes calls between `begin` and `end`, of one thread. An object with tensors in it, such as a graph, is one part
    of its batch: it moves as a whole.
    """

    def __init__(self) -> None:
        super().__init__()
        self._leaves: int | None = None
        # Of tensors in host memory: the positions, among the leaves of a batch, of what they were made of.
        self._origins: Any = WeakTensorKeyDictionary()
        self._moved: set[int] = set()
        self._needed: set[int] = set()
        self._together: set[frozenset[int]] = set()
        """Parts that were made into one, which has to be where all of them are."""
        self._called: set[str] = set()
        self._has_tensors = True
        self.arrive_on_device = False
        """What makes the batches has moved them already."""
        self.are_written = False
        """The loop puts other things into the containers and objects of its batches."""

    @property
    def moves_any(self) -> bool:
        """Whether the loop was seen to move a part of a batch off the host, be it one that it needs there, too."""
        return bool(self._moved)

    def begin(self, batch: Any) -> None:
        """Look out for the tensors of one more batch, as the loader gave it."""
        leaves = trees.leaves(batch)
        tensors = _tensors(leaves)
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
        """Note no more calls for now."""
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
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        origins = frozenset[int]().union(*(self._origins.get(tensor, ()) for tensor in inputs))
        if origins:
            self._note(getattr(func, "__name__", ""), inputs, origins, result)
        return result

    def _note(self, name: str, inputs: list[torch.Tensor], origins: frozenset[int], result: Any) -> None:
        on_host = [tensor for tensor in inputs if not _is_on_device(tensor)]
        # On the device, parts of the batch could not be used together with a tensor that stays on the host.
        is_needed = any(tensor.dim() and tensor not in self._origins for tensor in on_host)
        if is_needed or name in _ON_THE_HOST:
            self._needed |= origins
        if name in _IN_THE_LOOP:
            self._called.add("numpy" if name == "__array__" else name)
        self._together.add(origins)
        # `static[:] = part` gives nothing.
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)] or inputs[:1]
        if not any(map(_is_on_device, made)):
            for tensor in made:
                self._origins[tensor] = origins
        elif len(on_host) == len(inputs) or name in _ONTO_ANOTHER:
            self._moved |= origins

    def learnt(self) -> Transfer:
        """Return what moves the same parts of other batches, less those that the loop needs on the host."""
        moved = self._moved - self._needed
        while parted := [group for group in self._together if moved & group and not group <= moved]:
            moved = moved.difference(*parted)
        return Transfer(moved, self._leaves or 0)

    @property
    def in_the_loop(self) -> str | None:
        """What part of the input the loop seems to do by itself, for a sentence; None if none was seen."""
        if not self._has_tensors:
            return "gets batches without a tensor, and makes its tensors itself"
        called = " and ".join(f"{name}()" for name in sorted(self._called))
        return f"calls {called} on parts of its batch" if called else None


def _tensors(leaves: Sequence[Any]) -> list[tuple[int, torch.Tensor]]:
    """Return each tensor in the leaves of a batch, with the position of its leaf."""
    return [(at, tensor) for at, leaf in enumerate(leaves) for tensor in tensors_in(leaf)]


def _is_on_device(tensor: torch.Tensor) -> bool:
    return tensor.device.type != "cpu"


class Transfer:
    """Moves parts of a batch to the device, as a loop does.

    Args:
        moved: Their positions among the leaves of a batch.
        leaves: Leaves of the batch that it was seen with.
    """

    def __init__(self, moved: Collection[int], leaves: int) -> None:
        self.moved, self._leaves = frozenset(moved), leaves

    def __call__(self, batch: Any, device: torch.device) -> Any:
        """Return the batch with these parts on the device; one of another structure as it is.

        What moves itself in place is copied before, without its data.
        """
        if not self.moved or len(trees.leaves(batch)) != self._leaves:
            return batch
        at = -1

        def move(leaf: Any) -> Any:
            nonlocal at
            at += 1
            return move_to_device(leaf, device) if at in self.moved else leaf

        return trees.map_leaves(move, batch)
