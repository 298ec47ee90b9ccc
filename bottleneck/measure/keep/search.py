"""One walk over the user's objects: the models, optimizers, data and generators of a job, and the objects inside.

It runs none of the user's code.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset, Sampler

from bottleneck.job.inspect import names_in
from bottleneck.job.torch_loading import BaseIterator
from bottleneck.job.users_code import is_library
from bottleneck.measure.keep.process import GENERATORS
from bottleneck.results.records import Warning
from bottleneck.results.warnings.unseen import generator_not_restored, not_searched, not_searched_whole

MAX_ENTRIES = 10_000
"""Entries of a container of the data, or of the code, above which it is neither searched nor copied."""
_MAX_OBJECTS = 20_000
"""Objects to visit, not counting those inside a model or an optimizer."""
_IGNORED = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    type,
    types.ModuleType,
    types.CodeType,
    types.BuiltinFunctionType,
    types.GeneratorType,
    torch.dtype,
    torch.device,
    torch.Size,
    BaseIterator,
)
_TRAINED = (torch.nn.Module, torch.optim.Optimizer, LRScheduler, GradScaler, *GENERATORS)
_DATA = (Dataset, Sampler, DataLoader)
_LISTS = (list, tuple, set, frozenset, deque, bytearray)
_CODE = (types.FunctionType, types.MethodType, functools.partial)
_CONTENT = (torch.Tensor, np.ndarray, *GENERATORS)
COUPLED = ("torch.distributed", "torch.nn.parallel", "torch._dynamo", "deepspeed", "fairscale", "colossalai")
"""Modules whose wrappers mirror state outside Python (process groups, compiled code) in their attributes."""
_OPEN = ("torch.utils.data", "torch.optim", "torchvision", "types", "argparse", "collections")
"""Modules of libraries whose objects hold the user's state."""
_MACHINERY = frozenset({"torch", "torchvision", "numpy", "bottleneck", *sys.stdlib_module_names}) - {"__main__"}


def is_a(value: object, kinds: Any) -> bool:
    """Return True if an object's true type matches: lazy proxies answer isinstance() by loading their targets."""
    return issubclass(type(value), kinds)


@dataclass(frozen=True)
class Found:
    """An object that a search has reached."""

    value: Any
    what: str
    """Its name in a sentence."""
    kept: bool
    """True if it is restored after a diagnosis: a model, an optimizer or the like, data, or an object inside one."""
    data: bool = False
    """True if it belongs to the dataset or the loader: large content is skipped."""
    named: bool = False
    """True if the caller named it."""


class Search:
    """Walks to all reachable state, breadth first, so that a limit cuts the most distant objects.

    Args:
        note: Receives sentences on objects that were not searched.
        max_objects: Objects to visit, not counting those inside a model or an optimizer.
    """

    def __init__(self, note: Callable[[Warning], object] = lambda _: None, max_objects: int = _MAX_OBJECTS) -> None:
        self._note = note
        self._left = max_objects
        self._seen: dict[int, object] = {}
        self._own_packages: set[str] = set()
        self.found: list[Found] = []

    def all(self, kind: Any) -> list[Any]:
        """Return the objects of a type, or of one of several."""
        return [found.value for found in self.found if is_a(found.value, kind)]

    def walk(self, roots: Mapping[str, object], *, kept: bool = False, data: bool = False) -> None:
        """Search objects, each by its name in a sentence; objects seen by an earlier walk are skipped.

        Args:
            roots: Models, loaders, functions, or any other objects.
            kept: True if they are restored, regardless of their class.
            data: True if they are the dataset or the loader.
        """
        for what, root in roots.items():
            self._own_packages.add(package_of(getattr(root, "__module__", None) or type(root).__module__))
            queue = deque([Found(root, what, kept, data, named=True)])
            while queue:
                entry = queue.popleft()
                if is_a(entry.value, _IGNORED) or id(entry.value) in self._seen:
                    continue
                self._seen[id(entry.value)] = entry.value
                if self._left <= 0:
                    self._note(not_searched_whole(what))
                    break
                try:
                    entry = self._classified(entry)
                    self._left -= not _is_trained(entry)
                    self.found.append(entry)
                    queue.extend(self._children(entry))
                except Exception as error:  # noqa: BLE001 - user objects may raise anything; the rest is kept
                    self._note(not_searched(entry.what, error))

    def _classified(self, entry: Found) -> Found:
        """Decide if an object is restored: the contents of a restored one are, except the machinery of libraries."""
        value = entry.value
        if is_a(value, _TRAINED):
            return Found(value, entry.what, kept=True)
        if is_a(value, _DATA):
            return Found(value, entry.what, kept=True, data=True)
        kept = entry.kept and not is_a(value, _CODE)
        if kept and not entry.named and not is_a(value, (*_CONTENT, dict, *_LISTS)):
            module = type(value).__module__
            kept = module.startswith(_OPEN) or self._is_users(module)
        return Found(value, entry.what, kept, entry.data, entry.named)

    def _children(self, entry: Found) -> Iterator[Found]:
        value, named = entry.value, entry.named and is_a(entry.value, _CODE)
        if is_a(value, _CONTENT):
            return
        if is_a(value, (dict, *_LISTS)):
            if len(value) > MAX_ENTRIES and not _is_trained(entry):
                return
            held = _in_container(value)
        elif is_a(value, types.FunctionType):
            held, named = self._held_by_function(value), False
        elif is_a(value, types.MethodType):
            held = [("", value.__self__), ("", value.__func__)]
        elif is_a(value, functools.partial):
            held = [("", value.func), ("", value.args), ("", value.keywords)]
        elif is_a(value, torch.nn.Module):
            held = parts_of(value)
        else:
            held, named = self._held_by_object(entry), entry.named and type(value).__module__.startswith("bottleneck")
        for name, item in held:
            if not is_a(item, _IGNORED):
                yield Found(item, f"{entry.what}{name}", entry.kept, entry.data, named)

    def _held_by_function(self, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield f": {name}", cell.cell_contents
            except ValueError:  # still empty
                continue
        yield from (("", function.__defaults__), ("", function.__kwdefaults__))
        if not self._is_users(function.__module__):
            return
        names, namespace = names_in(function.__code__), function.__globals__
        for name in sorted(names & namespace.keys()):
            value = namespace[name]
            yield f": {name}", value
            if isinstance(value, types.ModuleType) and self._is_users(value.__name__):
                yield from ((f": {name}.{each}", vars(value)[each]) for each in sorted(names & vars(value).keys()))

    def _held_by_object(self, entry: Found) -> Iterator[tuple[str, Any]]:
        owner, cls = entry.value, type(entry.value)
        known = is_a(owner, (*_TRAINED, *_DATA)) or entry.named or cls.__module__.startswith(_OPEN)
        if not known and package_of(cls.__module__) in _MACHINERY:
            return
        for name, value in attributes(owner).items():
            if is_a(owner, Sampler) and is_a(value, types.GeneratorType):
                self._note(generator_not_restored(f"{entry.what}.{name}"))
            yield f".{name}", value
        if callable(owner) and isinstance(cls.__call__, types.FunctionType):
            yield "", cls.__call__

    def _is_users(self, module_name: str | None) -> bool:
        """Return True if a module is in the user's files, or in the package of an object that the caller named."""
        if not module_name or module_name in ("__main__", "__mp_main__"):
            return bool(module_name)
        if package_of(module_name) in self._own_packages - _MACHINERY:
            return True
        file = getattr(sys.modules.get(module_name), "__file__", None)
        return bool(file) and not is_library(str(file))


def _is_trained(entry: Found) -> bool:
    """Return True if it is part of a model or an optimizer; all of these are needed."""
    return entry.kept and not entry.data


def package_of(module_name: str) -> str:
    """Return the top-level package of a module."""
    return module_name.partition(".")[0]


def _in_container(container: Any) -> Iterable[tuple[str, Any]]:
    if not is_a(container, dict):
        return ((f"[{index}]", item) for index, item in enumerate(container))
    items = list(dict.items(container))
    named = ((f"[{key!r}]" if isinstance(key, (str, int)) else "[…]", item) for key, item in items)
    return chain(named, (("", key) for key, _ in items if is_a(key, torch.Tensor)))  # as in an optimizer's state


def parts_of(module: torch.nn.Module) -> Iterable[tuple[str, Any]]:
    """Return the parts of a module: of scripted ones and wrappers only submodules, parameters and buffers."""
    if isinstance(module, torch.jit.ScriptModule):
        return chain(module.named_parameters(), module.named_buffers())
    held = attributes(module)
    parts = ("_modules", "_parameters", "_buffers") if type(module).__module__.startswith(COUPLED) else held
    return [(f".{name}", held[name]) for name in parts if name in held]


def slots_of(owner: object) -> Iterator[tuple[str, types.MemberDescriptorType]]:
    """Yield the slots of an object's own classes, without the members of built-in types."""
    for cls in type(owner).__mro__:
        if "__slots__" in vars(cls):
            yield from (
                (name, each) for name, each in vars(cls).items() if isinstance(each, types.MemberDescriptorType)
            )


def attributes(owner: object) -> dict[str, Any]:
    """Return an object's attributes, in its `__dict__` and its slots, without running any code of its class."""
    found: dict[str, Any] = {}
    for name, member in slots_of(owner):
        try:
            found[name] = member.__get__(owner, type(owner))
        except AttributeError:
            continue
    return found | (namespace_of(owner) or {})


def namespace_of(owner: object) -> dict[str, Any] | None:
    """Return an object's `__dict__` itself; None if it has none."""
    try:
        own = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None
    return own if isinstance(own, dict) else None
