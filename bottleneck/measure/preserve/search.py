"""Finds what a diagnosis may change: a bounded walk from the model, the loader and the train step.

Of the user's own objects the attributes are kept. Objects of installed packages are searched for models,
optimizers, generators and the like, but not put back themselves: a logger that has sent its step 100 must not
go back to step 3.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from bottleneck.job.inspect import names_in
from bottleneck.measure.preserve.code import assigned_globals, is_installed, top_package
from bottleneck.measure.preserve.objects import (
    GENERATORS,
    ArraySnapshot,
    AttributesSnapshot,
    CellSnapshot,
    CollectionSnapshot,
    MappingSnapshot,
    NamesSnapshot,
    attributes,
    cell_contents,
    namespace,
    random_state,
    training_mode,
)
from bottleneck.measure.preserve.restoration import Notes, Snapshot
from bottleneck.measure.preserve.state import StateSnapshot
from bottleneck.measure.preserve.tensors import TensorVault

_Kind = TypeVar("_Kind")
_MAX_OBJECTS = 20_000
_MAX_ENTRIES = 10_000
_MAX_DATA_BYTES = 16 * 2**20

_IGNORED = (
    type(None), bool, int, float, complex, str, bytes, range, type, types.ModuleType, types.CodeType,
    types.BuiltinFunctionType, types.GeneratorType, torch.dtype, torch.device, torch.Size,
    _BaseDataLoaderIter,
)  # fmt: skip
_COLLECTIONS, _FIXED = (list, deque, set, bytearray), (tuple, frozenset)
_CONTAINERS = (dict, *_COLLECTIONS, *_FIXED)
# Parts of a module that are walked whole, however large.
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")
# Wrappers whose attributes mirror state outside Python (process groups, compiled code): only the mode, the
# parameters and the buffers go back.
_COUPLED = ("torch.distributed", "torch.nn.parallel", "torch._dynamo", "deepspeed", "fairscale", "colossalai")
_TORCH_STATE = ("torch.utils.data", "torch.optim", "torch.amp", "torch.cuda.amp", "torchvision")
_DATA = (Dataset, Sampler, DataLoader)
_PLAIN_LIBRARY = frozenset({"types", "argparse", "collections"})  # namespaces that hold a user's state
_NOBODYS = frozenset({"torch", "torchvision", "numpy", "bottleneck", *sys.stdlib_module_names}) - {"__main__"}


@dataclass(frozen=True)
class _Entry:
    """Something to look at.

    Attributes:
        value: The object.
        what: Its name in a sentence.
        whole: Part of a model or an optimizer: no limits.
        data: Belongs to the dataset or the loader: large content is left alone.
        owned: The holder is restored, so a plain container goes back too.
        root: Named by the caller: restored whatever its class.
    """

    value: Any
    what: str
    whole: bool = False
    data: bool = False
    owned: bool = True
    root: bool = False


class Search:
    """Walks from objects to everything reachable that has state.

    Args:
        vault: Receives the tensors.
        notes: Receive what cannot be kept.
        max_objects: How many objects to visit beside the parts of models and optimizers.
    """

    def __init__(self, vault: TensorVault, notes: Notes, max_objects: int = _MAX_OBJECTS) -> None:
        self._vault = vault
        self._notes = notes
        self._left = max_objects
        self._data_bytes_left = _MAX_DATA_BYTES
        self._seen: dict[int, object] = {}
        self._queue: deque[_Entry] = deque()
        self._own_packages: set[str] = set()
        self._stateful: list[_Entry] = []
        self._snapshots: list[Snapshot] = []

    @property
    def snapshots(self) -> list[Snapshot]:
        """Attributes, containers and generators, in any order; restored before the tensors."""
        return self._snapshots

    def found(self, kind: type[_Kind]) -> list[_Kind]:
        """The objects of a kind that the walks have reached."""
        return [value for value in self._seen.values() if issubclass(type(value), kind)]  # type: ignore[misc]  # any type will do

    def states(self) -> list[Snapshot]:
        """Take the states of objects that have a `state_dict`, when the vault is full; restored after the tensors."""
        taken: list[Snapshot] = []
        for entry in self._stateful:
            try:
                taken.append(StateSnapshot(entry.value, entry.what, self._vault.holds))
            except Exception as error:  # noqa: BLE001 - user objects may raise anything; the rest is kept
                if not entry.data:  # a stream that has not begun may have no state yet
                    self._notes.add_failure("did not give its state, and so was not put back", entry.what, error)
        return taken

    def walk(self, root: object, what: str, *, data: bool = False, own: bool = False) -> None:
        """Keep everything reachable from an object; what an earlier walk has seen is not seen again.

        Args:
            root: A model, an optimizer, a loader, a function, or any other object.
            what: Its name in a sentence: 'the train step'.
            data: It is the dataset or the loader: tensors and arrays in it are kept up to 16 MiB together.
            own: It is the user's code, and so is all of its package, even where that is installed.
        """
        if own:
            self._own_packages.add(top_package(root))
        self._queue.append(_Entry(root, what, data=data, root=True))
        while self._queue:
            entry = self._queue.popleft()  # breadth first, so that a limit cuts what is furthest away
            if id(entry.value) in self._seen or issubclass(type(entry.value), _IGNORED):
                continue
            self._seen[id(entry.value)] = entry.value
            if not entry.whole:
                if self._left <= 0:
                    self._notes.add(
                        f"The search of {what} for state ended before it had seen everything; "
                        "what lies beyond was not put back."
                    )
                    self._queue.clear()
                    return
                self._left -= 1
            try:
                self._visit(entry)
            except Exception as error:  # noqa: BLE001 - user objects may raise anything; the rest is kept
                self._notes.add_failure("could not be searched, and so was not put back", entry.what, error)

    def _visit(self, entry: _Entry) -> None:
        # type() and not isinstance(): lazy proxies answer isinstance() by loading what they stand for.
        cls = type(entry.value)
        if issubclass(cls, _CONTAINERS) and len(entry.value) > _MAX_ENTRIES and not entry.whole:
            return
        for kinds, visit in self._handlers():
            if issubclass(cls, kinds):
                visit(entry)
                return
        self._visit_instance(entry)

    def _handlers(self) -> tuple[tuple[tuple[type, ...], Callable[[_Entry], None]], ...]:
        return (
            ((torch.Tensor,), self._visit_tensor),
            ((dict,), self._visit_mapping),
            (_COLLECTIONS, self._visit_collection),
            (_FIXED, self._visit_items),
            ((torch.nn.Module,), self._visit_module),
            ((torch.optim.Optimizer,), self._visit_optimizer),
            (GENERATORS, self._visit_random),
            ((np.ndarray,), self._visit_array),
            ((types.FunctionType,), self._visit_function),
            ((types.MethodType,), self._visit_method),
            ((functools.partial,), self._visit_partial),
        )

    def _push(self, parent: _Entry, value: object, name: str, **changes: bool) -> None:
        if issubclass(type(value), _IGNORED):
            return
        flags = {"whole": parent.whole, "data": parent.data, "owned": parent.owned} | changes
        self._queue.append(_Entry(value, f"{parent.what}{name}", **flags))

    def _fits(self, entry: _Entry, size_bytes: int) -> bool:
        """Whether content may be copied; what belongs to the data draws on a small allowance."""
        if not entry.data:
            return True
        if size_bytes > self._data_bytes_left:
            return False
        self._data_bytes_left -= size_bytes
        return True

    def _visit_tensor(self, entry: _Entry) -> None:
        tensor = entry.value
        plain = tensor.layout is torch.strided
        if not entry.data or (plain and self._fits(entry, tensor.numel() * tensor.element_size())):
            self._vault.add(tensor, entry.what)

    def _visit_array(self, entry: _Entry) -> None:
        array = entry.value
        # Also outside the data: an array is rarely a step's state, and a memory map can be of any size.
        plain = type(array) is np.ndarray and array.dtype != object and array.flags.writeable
        if plain and array.nbytes <= _MAX_DATA_BYTES and self._fits(entry, array.nbytes):
            self._snapshots.append(ArraySnapshot(array, entry.what))

    def _visit_random(self, entry: _Entry) -> None:
        self._snapshots.append(random_state(entry.value, entry.what))

    def _visit_mapping(self, entry: _Entry) -> None:
        mapping: dict[Any, Any] = entry.value
        if entry.owned:
            self._snapshots.append(MappingSnapshot(mapping, entry.what))
        for key, value in list(dict.items(mapping)):
            self._push(entry, value, f"[{key!r}]" if isinstance(key, (str, int)) else "[…]")
            if entry.whole:
                self._push(entry, key, " (key)")  # an optimizer's state is keyed by its parameters

    def _visit_collection(self, entry: _Entry) -> None:
        if entry.owned:
            self._snapshots.append(CollectionSnapshot(entry.value, entry.what))
        self._visit_items(entry)

    def _visit_items(self, entry: _Entry) -> None:
        for index, value in enumerate(entry.value):
            self._push(entry, value, f"[{index}]")

    def _visit_module(self, entry: _Entry) -> None:
        module: torch.nn.Module = entry.value
        entry = _Entry(module, entry.what, whole=False, data=False, owned=True)
        if isinstance(module, torch.jit.ScriptModule):
            self._snapshots.extend(training_mode(part, entry.what) for part in module.modules())
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                self._push(entry, tensor, f".{name}", whole=True)
            return
        held = attributes(module)
        if type(module).__module__.startswith(_COUPLED):
            self._snapshots.append(training_mode(module, entry.what))
            held = {name: held[name] for name in _MODULE_PARTS if name in held}
        else:
            self._snapshots.append(AttributesSnapshot(module, entry.what))
        for name, value in held.items():
            inner = name in _MODULE_PARTS
            if inner and isinstance(value, dict):
                self._seen[id(value)] = value
                self._snapshots.append(MappingSnapshot(value, entry.what))
                for key, part in value.items():
                    self._push(entry, part, f".{key}", whole=True)
            else:
                # A module has a dozen empty containers for hooks: they are kept, and not counted.
                empty = isinstance(value, (dict, list, set)) and not value
                self._push(entry, value, f".{name}", whole=empty)

    def _visit_optimizer(self, entry: _Entry) -> None:
        entry = _Entry(entry.value, entry.what, whole=True, data=False, owned=True)
        self._snapshots.append(AttributesSnapshot(entry.value, entry.what))
        for name, value in attributes(entry.value).items():
            self._push(entry, value, f".{name}")

    def _visit_function(self, entry: _Entry) -> None:
        function: types.FunctionType = entry.value
        user = self._is_users(function.__module__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if user:
                self._snapshots.append(CellSnapshot(cell, f"{entry.what}: {name}"))
            self._push(entry, cell_contents(cell), f": {name}", owned=user)
        for value in (function.__defaults__, function.__kwdefaults__, function.__dict__):
            self._push(entry, value, "", owned=user)
        if user:
            self._visit_globals(entry, function)

    def _visit_globals(self, entry: _Entry, function: types.FunctionType) -> None:
        names, held = names_in(function.__code__), function.__globals__
        self._snapshots.append(NamesSnapshot(held, assigned_globals(function.__code__), entry.what))
        for name in sorted(names & held.keys()):
            value = held[name]
            if not issubclass(type(value), types.ModuleType):
                self._push(entry, value, f": {name}", owned=True)
            elif self._is_users(value.__name__):
                self._visit_names_of_module(entry, value, names)

    def _visit_names_of_module(self, entry: _Entry, module: types.ModuleType, names: set[str]) -> None:
        held = vars(module)
        used = sorted(names & held.keys())
        self._snapshots.append(NamesSnapshot(held, used, f"{entry.what}: {module.__name__}"))
        for name in used:
            self._push(entry, held[name], f": {module.__name__}.{name}", owned=True)

    def _visit_method(self, entry: _Entry) -> None:
        method: types.MethodType = entry.value
        self._queue.append(_Entry(method.__self__, entry.what, data=entry.data, root=entry.root))
        self._push(entry, method.__func__, "")

    def _visit_partial(self, entry: _Entry) -> None:
        part: functools.partial[Any] = entry.value
        self._queue.append(_Entry(part.func, entry.what, data=entry.data, root=entry.root))
        self._push(entry, part.args, "")
        self._push(entry, part.keywords, "")

    def _visit_instance(self, entry: _Entry) -> None:
        owner = entry.value
        cls = type(owner)
        wrapped = (namespace(owner) or {}).get("base_dataloader")  # as accelerate wraps loaders
        is_data = issubclass(cls, _DATA) or isinstance(wrapped, DataLoader)
        entry = _Entry(owner, entry.what, whole=entry.whole, data=entry.data or is_data, root=entry.root)
        known = cls.__module__.startswith(_TORCH_STATE)
        if not (entry.root or known or is_data) and _is_closed(cls):
            return
        stateful = _has_state(cls) and not is_data
        restored = entry.root or entry.whole or known or is_data or stateful or self._is_users(cls.__module__)
        if stateful and not known and not issubclass(cls, LRScheduler):
            self._stateful.append(entry)
        if restored and top_package(owner) != "bottleneck":
            self._snapshots.append(AttributesSnapshot(owner, entry.what))
        ours = entry.root and top_package(owner) == "bottleneck"  # holds what the caller named
        for name, value in attributes(owner).items():
            if issubclass(cls, Sampler) and isinstance(value, types.GeneratorType):
                self._notes.add(f"{entry.what}.{name} is a running generator: what it yielded could not be put back.")
            self._push(entry, value, f".{name}", owned=restored, root=ours)
        if callable(owner) and isinstance(cls.__call__, types.FunctionType):
            self._push(entry, cls.__call__, "", owned=False)

    def _is_users(self, module_name: str | None) -> bool:
        if not module_name:
            return False
        if module_name.partition(".")[0] in self._own_packages - _NOBODYS:
            return True
        return not is_installed(module_name)


def _has_state(cls: type) -> bool:
    return callable(getattr(cls, "state_dict", None)) and callable(getattr(cls, "load_state_dict", None))


def _is_closed(cls: type) -> bool:
    """Classes whose instances hold machinery rather than a user's state: not looked into."""
    package = cls.__module__.partition(".")[0]
    if package in {"torch", "numpy"}:
        return True
    return package in sys.stdlib_module_names and package not in _PLAIN_LIBRARY
