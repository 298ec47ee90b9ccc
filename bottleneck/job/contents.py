"""What an object of the user's holds: a walk through attributes, containers and functions, within bounds.

Attributes are read; nothing is called or changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from bottleneck.job.code_names import names_in
from bottleneck.job.key_paths import write_path
from bottleneck.job.recipes.interface import Item, KeyPath, attributes, entries

_MAX_OBJECTS = 5_000
_MAX_DEPTH = 6
MAX_ENTRIES = 64
"""Entries of one container that are looked into; longer ones hold data."""

_LEAVES = (
    type(None), bool, int, float, complex, str, bytes, bytearray, range, type, ModuleType, CodeType,
    torch.Tensor, torch.nn.Module, torch.Generator, torch.dtype, torch.device, np.ndarray, np.generic,
)  # fmt: skip
_LIBRARIES = frozenset({"torch", "torchvision", "numpy", "PIL", "builtins", "bottleneck"})
"""Whose functions are not looked into."""


@dataclass(frozen=True)
class Held:
    """Something inside an object.

    Attributes:
        path: Keys from the object.
        name: The same in words: a path, or the name of a variable that a function uses.
        value: What lies there.
    """

    path: KeyPath
    name: str
    value: Any


def walk(
    root: Any,
    name: str = "",
    *,
    stop_at: Callable[[Any], bool] = lambda _: False,
    functions: bool = False,
) -> Iterator[Held]:
    """Yield what an object of some name holds, breadth first, each object once, and the object itself first.

    Args:
        stop_at: What is yielded, but not looked into.
        functions: Look into functions too: their closures, and the globals that they use.
    """
    seen: set[int] = set()
    # The objects are kept alive, so that no identity is met twice by chance.
    queue: deque[tuple[Held, int]] = deque([(Held((), name, root), 0)])
    kept: list[Any] = []
    while queue and len(kept) < _MAX_OBJECTS:
        held, depth = queue.popleft()
        if id(held.value) in seen:
            continue
        seen.add(id(held.value))
        kept.append(held.value)
        yield held
        if depth < _MAX_DEPTH and not isinstance(held.value, _LEAVES) and not stop_at(held.value):
            queue.extend((child, depth + 1) for child in _children(held, functions=functions))


def _children(held: Held, *, functions: bool) -> Iterator[Held]:
    value = held.value
    if isinstance(value, (FunctionType, MethodType, partial)):
        if functions:
            yield from _parts_of_function(held)
        return
    if isinstance(value, (dict, list, tuple)):
        if len(value) <= MAX_ENTRIES:
            for path, entry in entries(value):
                yield _within(held, path, entry)
        return
    try:
        state = list(attributes(value).items())
    except Exception:  # noqa: BLE001 - any user type may refuse to be looked into
        return
    for key, entry in state:
        if isinstance(key, str):
            yield _within(held, (key,), entry)


def _within(held: Held, path: KeyPath, value: Any) -> Held:
    tail = write_path(path)
    joint = "" if not held.name or tail.startswith("[") else "."
    return Held((*held.path, *path), f"{held.name}{joint}{tail}", value)


def _parts_of_function(held: Held) -> Iterator[Held]:
    """Yield what a function uses: what is bound to it, its closure, and its globals by name."""
    function, path = held.value, held.path
    if isinstance(function, partial):
        yield Held((*path, "func"), held.name, function.func)
        for number, argument in enumerate(function.args):
            yield Held((*path, "args", number), held.name, argument)
        for key, argument in function.keywords.items():
            yield Held((*path, "keywords", Item(key)), key, argument)
        return
    if isinstance(function, MethodType):
        yield Held((*path, "__self__"), held.name, function.__self__)
        function, path = function.__func__, (*path, "__func__")
    if not isinstance(function, FunctionType) or str(function.__module__).partition(".")[0] in _LIBRARIES:
        return
    for number, (variable, cell) in enumerate(
        zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    ):
        try:
            yield Held((*path, "__closure__", number, "cell_contents"), variable, cell.cell_contents)
        except ValueError:  # still empty
            continue
    for name in names_in(function.__code__):
        if name in function.__globals__:
            yield Held((*path, "__globals__", Item(name)), name, function.__globals__[name])
