"""Plain Python objects as they were: one level deep, by identity, in the same container objects.

Nothing is deep-copied: whatever lies below is an object of its own, which the search finds or leaves alone.
"""

from __future__ import annotations

import copy
import random
from collections import OrderedDict, deque
from collections.abc import Iterable
from types import CellType, MemberDescriptorType
from typing import Any

import numpy as np
import torch

from bottleneck.measure.preserve.restoration import Setting, State

_MISSING = object()


def _same(left: Iterable[Any], right: Iterable[Any]) -> bool:
    """Whether two sequences hold the identical objects; equality of tensors would not be a truth value."""
    return [id(item) for item in left] == [id(item) for item in right]


class MappingSnapshot:
    """The entries of a dict, or of an object's `__dict__`."""

    def __init__(self, mapping: dict[Any, Any], what: str) -> None:
        self.what = what
        self._mapping = mapping
        # Through the base classes: subclasses may do more in their own methods.
        self._base: Any = OrderedDict if isinstance(mapping, OrderedDict) else dict
        self._saved: dict[Any, Any] = dict(self._base.items(mapping))

    def restore(self) -> None:
        """Remove what was added, put back what was replaced or removed, in the old order."""
        mapping, saved, base = self._mapping, self._saved, self._base
        for key in [key for key in base.keys(mapping) if key not in saved]:
            base.__delitem__(mapping, key)
        for key, value in saved.items():
            if dict.get(mapping, key, _MISSING) is not value:
                base.__setitem__(mapping, key, value)
        if not _same(base.keys(mapping), saved):
            base.clear(mapping)
            for key, value in saved.items():
                base.__setitem__(mapping, key, value)


class NamesSnapshot:
    """Some names of a namespace: the globals that a function assigns to."""

    def __init__(self, namespace: dict[str, Any], names: Iterable[str], what: str) -> None:
        self.what = what
        self._namespace = namespace
        self._saved = {name: namespace.get(name, _MISSING) for name in names}

    def restore(self) -> None:
        for name, value in self._saved.items():
            if value is _MISSING:
                self._namespace.pop(name, None)
            elif self._namespace.get(name, _MISSING) is not value:
                self._namespace[name] = value


class CellSnapshot:
    """A variable that a function closes over."""

    def __init__(self, cell: CellType, what: str) -> None:
        self.what = what
        self._cell = cell
        self._saved = cell_contents(cell)

    def restore(self) -> None:
        if self._saved is _MISSING:
            if cell_contents(self._cell) is not _MISSING:
                del self._cell.cell_contents
        elif cell_contents(self._cell) is not self._saved:
            self._cell.cell_contents = self._saved


def cell_contents(cell: CellType) -> Any:
    """What a cell holds; a marker object where it is still empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


class CollectionSnapshot:
    """The items of a list, deque, set or bytearray."""

    def __init__(self, collection: Any, what: str) -> None:
        self.what = what
        self._collection = collection
        self._saved = list(collection)

    def restore(self) -> None:
        collection = self._collection
        if isinstance(collection, (set, bytearray)):
            unchanged = collection == type(collection)(self._saved)
        else:
            unchanged = _same(collection, self._saved)
        if unchanged:
            return
        if isinstance(collection, (list, bytearray)):
            collection[:] = self._saved if isinstance(collection, list) else bytearray(self._saved)
        elif isinstance(collection, deque):
            collection.clear()
            collection.extend(self._saved)
        else:
            collection.clear()
            collection.update(self._saved)


def slots(owner: object) -> list[tuple[str, MemberDescriptorType]]:
    """The slots of an object's own classes, by name; the members of built-in types are none."""
    return [
        (name, member)
        for cls in type(owner).__mro__
        if "__slots__" in vars(cls)
        for name, member in vars(cls).items()
        if isinstance(member, MemberDescriptorType)
    ]


def attributes(owner: object) -> dict[str, Any]:
    """An object's attributes, in its `__dict__` and its slots, without running any code of its class."""
    found: dict[str, Any] = {}
    for name, member in slots(owner):
        try:
            found[name] = member.__get__(owner, type(owner))
        except AttributeError:
            continue
    found.update(namespace(owner) or {})
    return found


def namespace(owner: object) -> dict[str, Any] | None:
    """An object's `__dict__` itself; None if it has none."""
    try:
        own = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None
    return own if isinstance(own, dict) else None


class AttributesSnapshot:
    """An object's own attributes, and its class where that can change (lazy modules change theirs)."""

    def __init__(self, owner: Any, what: str) -> None:
        self.what = what
        self._owner = owner
        self._class = type(owner)
        own = namespace(owner)
        self._namespace = MappingSnapshot(own, what) if own is not None else None
        held = attributes(owner)
        self._slots = [(member, held.get(name, _MISSING)) for name, member in slots(owner)]

    def restore(self) -> None:
        """Put the same attributes back, past any `__setattr__` of the class."""
        if type(self._owner) is not self._class:
            self._owner.__class__ = self._class
        if self._namespace is not None:
            self._namespace.restore()
        for member, value in self._slots:
            if value is not _MISSING:
                member.__set__(self._owner, value)


def training_mode(module: torch.nn.Module, what: str) -> Setting:
    """Keep the train/eval mode of one module whose other attributes are left alone."""
    return Setting(what, lambda: module.training, lambda mode: setattr(module, "training", mode))


GENERATORS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)


def random_state(generator: Any, what: str) -> State:
    """Keep the state of a random number generator, one of `GENERATORS`."""
    if isinstance(generator, torch.Generator):
        return State(what, generator.get_state, generator.set_state)
    if isinstance(generator, random.Random):
        return State(what, generator.getstate, generator.setstate)
    if isinstance(generator, np.random.RandomState):
        return State(what, lambda: generator.get_state(legacy=False), generator.set_state)
    bits = generator.bit_generator
    return State(what, lambda: copy.deepcopy(bits.state), lambda state: setattr(bits, "state", state))


class ArraySnapshot:
    """The content of a numpy array."""

    def __init__(self, array: np.ndarray[Any, Any], what: str) -> None:
        self.what = what
        self._array = array
        self._saved = array.copy()

    def restore(self) -> None:
        if self._array.flags.writeable:
            self._array[...] = self._saved
