"""What of a batch a loop moves to the device by itself: seen in one real step, for `device` to have it there already.

What the loop needs on the host stays there: labels that it counts, texts that it tokenizes, images that it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from bottleneck.loader import trees

_MOVERS = frozenset({"to", "cuda", "xpu", "npu", "mps"})
_ON_THE_HOST = frozenset({"numpy", "__array__", "pin_memory"})
"""What a loop calls that goes on with its batch on the host."""


class Moves(TorchFunctionMode):
    """Notes while it is entered which tensors of one batch are moved off the host.

    Args:
        batch: As the loader gave it.
    """

    def __init__(self, batch: Any) -> None:
        super().__init__()
        # The tensors are kept, so that no other object gets the identity of one.
        self._leaves = trees.leaves(batch)
        self._positions = {id(leaf): at for at, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)}
        # What is on a device already was moved there by what makes the batch.
        self._moved = {at: True for at, leaf in enumerate(self._leaves) if _is_on_device(leaf)}
        self._on_the_host: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        at = self._positions.get(id(args[0])) if args else None
        if at is None:
            return result
        if name in _MOVERS and isinstance(result, torch.Tensor) and result.device != args[0].device:
            self._moved[at] = bool((kwargs or {}).get("non_blocking"))
        elif name in _ON_THE_HOST:
            self._on_the_host.add("numpy" if name == "__array__" else name)
        return result

    def learnt(self) -> Transfer:
        """Return what moves the same parts of other batches."""
        return Transfer(dict(self._moved), len(self._leaves))

    @property
    def in_the_loop(self) -> str | None:
        """What part of the input the loop seems to do by itself, for a sentence; None if none was seen."""
        if not self._positions:
            return "gets batches without a tensor, and makes its tensors itself"
        called = " and ".join(f"{name}()" for name in sorted(self._on_the_host))
        return f"calls {called} on parts of its batch" if called else None


def _is_on_device(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu"


class Transfer:
    """Moves parts of a batch to the device, as a loop does.

    Args:
        moved: Their positions among the leaves of a batch, and whether the loop goes on while they are copied.
        leaves: Leaves of the batch that it was seen with.
    """

    def __init__(self, moved: Mapping[int, bool], leaves: int) -> None:
        self.moved, self._leaves = moved, leaves

    def __call__(self, batch: Any, device: torch.device) -> Any:
        """Return the batch with these parts on the device; one of another structure as it is."""
        if not self.moved or len(trees.leaves(batch)) != self._leaves:
            return batch
        at = -1

        def move(leaf: Any) -> Any:
            nonlocal at
            at += 1
            movable = at in self.moved and isinstance(leaf, torch.Tensor)
            return leaf.to(device, non_blocking=self.moved[at]) if movable else leaf

        return trees.map_leaves(move, batch)
