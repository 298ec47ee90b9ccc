"""Which tensors of a batch the train step never reads: they are loaded, handed over and copied for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bottleneck.measure.payload import Part, parts_of
from bottleneck.pipeline.contents import walk

_WATCHED_STEPS = 2
_MOVES = frozenset({
    "_to_copy", "to", "cuda", "cpu", "clone", "detach", "alias", "pin_memory", "_pin_memory", "contiguous",
    "lift_fresh", "requires_grad_", "record_stream",
})  # fmt: skip
"""Operations that only bring a tensor somewhere else."""
_LOOKS = frozenset({
    "__get__", "size", "dim", "numel", "element_size", "is_pinned", "is_contiguous", "type", "stride", "data_ptr",
    "is_floating_point", "untyped_storage", "__len__", "get_device", "nelement",
})  # fmt: skip
"""What tells about a tensor, and not what is in it."""


class WatchedStep:
    """A train step whose first calls are watched: what of their batch do they read?

    A tensor counts as read when any operation of PyTorch's but a copy gets it, in Python or below. Code that reaches
    past PyTorch for the memory of a tensor is not seen.

    Args:
        step: The train step.
        works_in: Objects that the step uses; where one is compiled, nothing is watched, for that would change it.
    """

    def __init__(self, step: Callable[[Any], Any], works_in: Iterable[Any] = ()) -> None:
        self._step = step
        self._left = 0 if any(is_compiled(root) for root in works_in) else _WATCHED_STEPS
        self._seen: set[str] = set()
        self._read: set[str] = set()

    def __call__(self, batch: Any) -> Any:
        """Do the step."""
        if not self._left:
            return self._step(batch)
        self._left -= 1
        parts = list(parts_of(batch))
        watch = _Watch(parts)
        try:
            with watch:
                result = self._step(batch)
        except Exception:  # noqa: BLE001 - some operations refuse to be watched; the user's own errors come again
            self._left, self._seen = 0, set()
            return self._step(batch)
        self._seen |= {part.path for part in parts}
        self._read |= watch.read
        return result

    def unread(self, batch: Any) -> dict[str, Any]:
        """Return the tensors of a batch that were not read, as plain values.

        Args:
            batch: A batch as the loader gives it.

        Returns:
            `unread` (paths) and `unread_bytes`; both None where that is not known, as when the transfer to the device
            gives a batch of another form.
        """
        parts = list(parts_of(batch))
        if not self._seen or {part.path for part in parts} != self._seen:
            return {"unread": None, "unread_bytes": None}
        left = [part for part in parts if part.path not in self._read]
        return {"unread": [part.path for part in left], "unread_bytes": sum(part.nbytes for part in left)}


def is_compiled(root: Any) -> bool:
    """Whether an object, or something that it uses, is compiled by `torch.compile` or `torch.jit`."""
    return any(_is_compiled(found.value) for found in walk(root, functions=True))


def _is_compiled(value: Any) -> bool:
    if isinstance(value, torch.nn.Module):
        return any(_is_compiled_module(module) for module in value.modules())
    return callable(value) and hasattr(value, "_torchdynamo_orig_callable")


def _is_compiled_module(module: torch.nn.Module) -> bool:
    if getattr(module, "_compiled_call_impl", None) is not None or isinstance(module, torch.jit.ScriptModule):
        return True
    return type(module).__name__ == "OptimizedModule"


class _Watch:
    """Notes which tensors operations get, while it is entered."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.read: set[str] = set()
        self._paths: dict[int, set[str]] = {}
        self._kept: list[Any] = []
        self._stack = ExitStack()
        for part in parts:
            self._belongs(part.tensor, {part.path})

    def __enter__(self) -> None:
        self._stack.enter_context(_Functions(self))
        self._stack.enter_context(_Operations(self))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def see(self, name: str, inputs: Any, output: Any) -> None:
        """Note one call.

        Args:
            name: Of the operation.
            inputs: All its arguments.
            output: What it returned.
        """
        if name in _LOOKS:
            return
        paths = {path for leaf in tree_leaves(inputs) for path in self._paths.get(_storage(leaf), ())}
        if not paths:
            return
        if name in _MOVES:
            for leaf in tree_leaves(output):
                self._belongs(leaf, paths)
        else:
            self.read |= paths

    def _belongs(self, value: Any, paths: set[str]) -> None:
        key = _storage(value)
        if key:
            self._kept.append(value)  # so that its memory is not given to another one
            self._paths.setdefault(key, set()).update(paths)


def _storage(value: Any) -> int:
    """Return what identifies the memory of a tensor; 0 for anything else."""
    if not isinstance(value, torch.Tensor):
        return 0
    try:
        # Through the base class: neither a subclass nor our own modes are to be asked.
        with torch._C.DisableTorchFunction():
            return int(value.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # sparse, or of a kind without one storage
        return 0


class _Functions(TorchFunctionMode):
    """Sees calls in Python, those that end in no operation, such as `numpy()`, among them."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self._watch.see(str(getattr(func, "__name__", "")), (args, kwargs), output)
        return output


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # has no annotations
    """Sees operations below Python."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # has no annotations
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        name = str(getattr(getattr(func, "overloadpacket", func), "__name__", ""))
        self._watch.see(name, (args, kwargs), output)
        return output
