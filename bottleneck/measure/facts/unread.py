"""Which tensors of a batch the train step never reads: they are loaded, handed over and copied for nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bottleneck.measure.facts.payload import Part, parts_of
from bottleneck.results.evidence import Payload

_WATCHED_STEPS = 2
_LITTLE_S = 0.5
_MOVES = frozenset({
    "_to_copy", "to", "cuda", "cpu", "clone", "detach", "alias", "pin_memory", "_pin_memory", "contiguous",
    "lift_fresh", "requires_grad_", "record_stream",
})  # fmt: skip
"""Operations that only bring a tensor somewhere else."""
_LOOKS = frozenset({
    "__get__", "size", "dim", "numel", "element_size", "is_pinned", "is_contiguous", "type", "stride", "data_ptr",
    "is_floating_point", "untyped_storage", "__len__", "get_device", "nelement",
})  # fmt: skip
"""What asks for a property of a tensor, and not for its content."""


class WatchedStep:
    """A train step that notes, in a few of its calls, which tensors of the batch it reads.

    A tensor counts as read when any operation of PyTorch's but a copy gets it, in Python or below. Code that reaches
    past PyTorch for the memory of a tensor goes unnoticed. The first call is never watched: it shows whether the step
    compiles itself, and compiled code is left alone, since under a watch it would be compiled once more.

    Args:
        batches_ahead: Calls after which a batch may still be waiting to be read.
    """

    def __init__(
        self, step: Callable[[Any], Any], clock: Callable[[], float] = time.perf_counter, batches_ahead: int = 0
    ) -> None:
        self._step, self._clock = step, clock
        self._fewest, self._most = 1 + batches_ahead, _WATCHED_STEPS + batches_ahead
        self._last_s = 0.0
        self._calls = self._watched = 0
        self._refused = False
        self._seen: set[str] = set()
        self._watch = _Watch()

    def __call__(self, batch: Any) -> Any:
        started_s = self._clock()
        try:
            return self._call(batch)
        finally:
            self._last_s = self._clock() - started_s

    def _call(self, batch: Any) -> Any:
        self._calls += 1
        if self._refused or not 1 < self._calls <= 1 + self._most or has_compiled():
            return self._step(batch)
        parts = list(parts_of(batch))
        self._watch.add(parts)
        try:
            with self._watch:
                result = self._step(batch)
        except Exception:  # noqa: BLE001 - some operations refuse to be watched; the user's own errors come again
            self._refused, self._seen = True, set()
            return self._step(batch)
        self._seen |= {part.path for part in parts}
        self._watched += 1
        return result

    def catch_up(self, serve: Callable[[], Any]) -> None:
        """Do more steps, with batches on the device, if too few were watched so far and they take little time."""
        for _ in range(max(0, 1 + self._fewest - self._calls)):
            if self._last_s < _LITTLE_S:
                with suppress(Exception):  # what fails here fails again where it is explained to the user
                    self(serve())

    def add_unread(self, payload: Payload, batch: Any) -> Payload:
        """Return the payload with the tensors that were not read.

        Args:
            payload: What a batch holds.
            batch: As the loader returns it. Where the transfer to the device returns one of another form, nothing is
                known.
        """
        parts = list(parts_of(batch))
        known = self._seen and self._watched >= self._fewest
        if not known or {part.path for part in parts} != self._seen:
            return payload
        left = [part for part in parts if part.path not in self._watch.read]
        return replace(
            payload, unread=tuple(part.path for part in left), unread_bytes=sum(part.nbytes for part in left)
        )


def has_compiled() -> bool:
    """Whether `torch.compile` has been at work in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters.get("frames"))


class _Watch:
    """Notes which tensors operations get, while it is entered."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self._paths: dict[int, set[str]] = {}
        self._kept: list[Any] = []
        self._stack = ExitStack()

    def add(self, parts: Sequence[Part]) -> None:
        """Look out for the tensors of one more batch; a loop that looks ahead reads them in a later call."""
        for part in parts:
            self._belongs(part.tensor, {part.path})

    def __enter__(self) -> None:
        self._stack.enter_context(_Functions(self))
        self._stack.enter_context(_Operations(self))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def see(self, name: str, inputs: Any, output: Any) -> None:
        """Note one call of an operation."""
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
        # Through the base class, past subclasses and our own modes.
        with torch._C.DisableTorchFunction():
            return int(value.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # sparse, or of a kind without one storage
        return 0


class _Functions(TorchFunctionMode):
    """Notes calls in Python, also those that end in no operation, such as `numpy()`."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self._watch.see(str(getattr(func, "__name__", "")), (args, kwargs), output)
        return output


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # has no annotations
    """Notes operations below Python."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # has no annotations
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        name = str(getattr(getattr(func, "overloadpacket", func), "__name__", ""))
        self._watch.see(name, (args, kwargs), output)
        return output
