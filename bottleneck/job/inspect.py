"""Inspection of the user's objects: a walk through attributes and containers, and paths to their contents.

Attributes are read; nothing is called or changed.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Item:
    """A key of a mapping, as part of a path; a string in a path is an attribute, a number a position."""

    key: Any


Key = str | int | Item
KeyPath = tuple[Key, ...]
"""Keys from an object to something inside it."""
_STEP = re.compile(r"""\.?(?P<name>[^.\[\]'"]+)|\[(?P<key>'[^']*'|"[^"]*"|[^\[\]'"]*)\]|\.""")


def follow(value: Any, key: Key) -> Any:
    """Return the value at one key of an object."""
    if isinstance(key, str):
        return getattr(value, key)
    return value[key.key if isinstance(key, Item) else key]


def resolve(value: Any, path: KeyPath) -> Any:
    """Return the value at a path of an object."""
    for key in path:
        value = follow(value, key)
    return value


def write_path(path: KeyPath) -> str:
    """Write a path as in code, such as `dataset.transforms[0]`."""
    text = ""
    for key in path:
        if isinstance(key, Item):
            text += f"[{key.key!r}]"
        else:
            text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.lstrip(".")


def parse_path(text: str) -> KeyPath:
    """Read a path as a user writes it: `dataset.transform`, `steps[0]`, `steps.0`, `options['transform']`.

    Raises:
        ValueError: It cannot be read, or is empty.
    """
    keys: list[Key] = []
    place = 0
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            raise ValueError(text)
        place = step.end()
        word = step["name"] if step["key"] is None else step["key"].strip()
        if word is None:
            continue
        if word[:1] in ("'", '"'):
            keys.append(Item(ast.literal_eval(word)))
        else:
            keys.append(int(word) if word.isdigit() else word)
    if not keys or "" in keys:
        raise ValueError(text)
    return tuple(keys)


def attributes(value: Any) -> Mapping[str, Any]:
    """Return the attributes that an object itself holds, without those of its class and computed ones."""
    held = getattr(value, "__dict__", None)
    return held if isinstance(held, Mapping) else {}


def entries(container: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the entries of a list, tuple or mapping (or one that PyTorch made of modules) with their paths.

    Args:
        container: Any object; other types have no entries.
        path: Path of the container.
    """
    if isinstance(container, Mapping):
        yield from (((*path, Item(key)), value) for key, value in list(container.items()))
    elif isinstance(container, (list, tuple)) or type(container).__name__ == "ModuleList":
        yield from (((*path, position), value) for position, value in enumerate(container))


def listed_callables(value: Any, name: str) -> Iterator[KeyPath]:
    """Yield the paths of the callables in a container that is an attribute of an object."""
    return (path for path, member in entries(getattr(value, name, None), (name,)) if callable(member))


def names_in(code: CodeType) -> set[str]:
    """Return the names that code and the code defined in it look up: globals and attributes, which share a table."""
    return set(code.co_names).union(*(names_in(const) for const in code.co_consts if isinstance(const, CodeType)))


_MAX_OBJECTS = 5_000
_MAX_DEPTH = 6
MAX_ENTRIES = 64
"""Maximum entries of a container that is inspected; longer ones hold data."""

_LEAVES = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    range,
    type,
    ModuleType,
    CodeType,
    FunctionType,
    MethodType,
    partial,
    torch.Tensor,
    torch.nn.Module,
    torch.Generator,
    torch.dtype,
    torch.device,
    np.ndarray,
    np.generic,
)


@dataclass(frozen=True)
class Held:
    """A value inside an object.

    Attributes:
        path: Keys from the object.
        name: The path in words.
        value: The value.
    """

    path: KeyPath
    name: str
    value: Any


def walk(root: Any, name: str = "", *, stop_at: Callable[[Any], bool] = lambda _: False) -> Iterator[Held]:
    """Yield the contents of an object, breadth first, each object once, beginning with the object itself.

    Args:
        root: The object.
        name: Its name.
        stop_at: Returns True for values that are yielded, but not inspected further.
    """
    seen: dict[int, Any] = {}  # keeps the objects alive, so that no identity is reused
    queue: deque[tuple[Held, int]] = deque([(Held((), name, root), 0)])
    while queue and len(seen) < _MAX_OBJECTS:
        held, depth = queue.popleft()
        if id(held.value) in seen:
            continue
        seen[id(held.value)] = held.value
        yield held
        if depth < _MAX_DEPTH and not isinstance(held.value, _LEAVES) and not stop_at(held.value):
            queue.extend((child, depth + 1) for child in _children(held))


def _children(held: Held) -> Iterator[Held]:
    value = held.value
    found: list[tuple[KeyPath, Any]] = []
    if isinstance(value, (dict, list, tuple)):
        if len(value) <= MAX_ENTRIES:
            found = list(entries(value))
    else:
        try:
            found = [((key,), entry) for key, entry in attributes(value).items() if isinstance(key, str)]
        except Exception:  # noqa: BLE001 - any user type may refuse inspection
            return
    for path, entry in found:
        tail = write_path(path)
        joint = "" if not held.name or tail.startswith("[") else "."
        yield Held((*held.path, *path), f"{held.name}{joint}{tail}", entry)


def modules_of(*roots: Any) -> frozenset[str]:
    """Return the modules that define some objects and their contents, and modules of the same package imported there.

    All modules without a package, such as those next to a script, count as one package.
    """
    held = (_behind(one.value) for root in roots for one in walk(root))
    sources = [base for one in held for base in (one.__mro__ if isinstance(one, type) else (one,))]
    own = {str(one.__module__) for one in sources} - {"builtins"}
    imported = {name for module in own for name in _imports(sys.modules.get(module))}
    return frozenset(own | imported)


def _behind(value: Any) -> Any:
    """Return the class or function whose code runs when an object is used."""
    while isinstance(value, partial):
        value = value.func
    if isinstance(value, FunctionType):
        return inspect.unwrap(value)
    if isinstance(value, MethodType):
        return type(value.__self__)
    return value if isinstance(value, type) else type(value)


def _imports(module: ModuleType | None) -> Iterator[str]:
    """Yield the modules of the same package from which a module has imported something."""
    for value in list(vars(module).values()) if module is not None else ():
        name = value.__name__ if isinstance(value, ModuleType) else getattr(_behind(value), "__module__", None)
        found = sys.modules.get(str(name))
        if found is not None and _package_of(found) == _package_of(module):
            yield str(name)


def _package_of(module: ModuleType | None) -> str:
    return str(getattr(module, "__package__", None) or "").partition(".")[0]


_UNSAFE = frozenset(
    {
        "h5py.File",
        "h5py.Group",
        "h5py.Dataset",
        "lmdb.Environment",
        "lmdb.Transaction",
        "zipfile.ZipFile",
        "tarfile.TarFile",
        "sqlite3.Connection",
        "netCDF4.Dataset",
        "tables.File",
        "rasterio.DatasetReader",
        "psycopg2.connection",
        "psycopg.Connection",
        "pymongo.MongoClient",
        "redis.Redis",
        "requests.Session",
        "decord.VideoReader",
        "av.InputContainer",
    }
)
"""Objects that processes cannot share, because a forked worker gets the same file descriptor, whose position all
processes move. Package and class; the modules between the two differ between versions."""
_MAX_FOUND = 20


@dataclass(frozen=True)
class Handle:
    """An open resource in a dataset.

    Attributes:
        path: Keys from the dataset.
        name: The path in words, such as `self.file`.
        kind: Package and class, such as `h5py.File`.
        identity: `id` of the object in the process that found it; a forked worker finds the same one, or has opened
            its own.
    """

    path: KeyPath
    name: str
    kind: str
    identity: int


def find_handles(dataset: Any) -> tuple[Handle, ...]:
    """Return the open resources of a dataset that are not safe to use from several processes."""
    found = (
        Handle(held.path, held.name, kind, id(held.value))
        for held in walk(dataset, "self", stop_at=lambda value: _handle_kind(value) is not None)
        if (kind := _handle_kind(held.value)) is not None and _is_open(held.value)
    )
    return tuple(islice(found, _MAX_FOUND))


def is_inherited(handle: Handle, dataset: Any) -> bool:
    """Return True if a worker's copy of the dataset still uses a resource that was open before the fork."""
    try:
        value = resolve(dataset, handle.path)
        return id(value) == handle.identity and _handle_kind(value) == handle.kind and _is_open(value)
    except Exception:  # noqa: BLE001 - the worker has replaced it
        return False


def is_file(value: Any) -> bool:
    """Return True if a value is a file, an archive, a database, or a memory map."""
    return type(value).__name__ == "memmap" or _handle_kind(value) is not None


def _handle_kind(value: Any) -> str | None:
    """Return package and class of a value that is not safe to share between processes; None for others."""
    if isinstance(value, socket.socket):
        return "socket.socket"
    if not isinstance(value, io.IOBase):
        names = (f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(value).__mro__)
        return next((name for name in names if name in _UNSAFE), None)
    try:
        value.fileno()
        return "an open file" if value.readable() else None  # a log file that is only written does no harm
    except (OSError, ValueError):  # it is in memory, or closed
        return None


def _is_open(value: Any) -> bool:
    try:
        if getattr(value, "closed", False) is True:
            return False
        if isinstance(value, socket.socket):
            return value.fileno() != -1
        if type(value).__name__ == "ZipFile":
            return value.fp is not None
        # Handles of h5py are false once their file is closed.
        return bool(value) if type(value).__module__.startswith("h5py") else True
    except Exception:  # noqa: BLE001 - a type that cannot be asked counts as open
        return True


_MAX_SAMPLED = 32
"""Entries of a container from which the others are estimated."""
_ENOUGH = 8
"""Minimum entries for repetitions to be significant."""
_MAX_COUNTED_DEPTH = 4
_SMALL_INTS = range(-5, 257)
"""Integers of which Python keeps one object each."""


@dataclass(frozen=True)
class ObjectCount:
    """Approximate number of Python objects in a dataset.

    A forked worker that reads an object writes its reference count, so that the page around it is no longer shared
    (pytorch/pytorch#13246). Arrays and tensors hold their values in one piece, and count as one object.
    """

    objects: int
    nbytes: int
    largest: str = ""
    """The attribute with the most objects, such as `self.samples`; empty if there is none."""


def count_objects(dataset: Any) -> ObjectCount:
    """Estimate the Python objects in the large containers of a dataset, in constant time."""
    found: list[tuple[float, float, str]] = []
    for held in walk(dataset, "self"):
        if any(length > MAX_ENTRIES for _, length in _sampled(held.value)):
            found.append((*_estimate(held.value, 0, set()), held.name))
    largest = max(found, default=(0.0, 0.0, ""))[2]
    return ObjectCount(round(sum(one[0] for one in found)), round(sum(one[1] for one in found)), largest)


def _sampled(value: Any) -> list[tuple[list[Any], int]]:
    """Return some entries of a container and the number of all, without running code of a subclass; two for a dict."""
    if isinstance(value, dict):
        return [(list(islice(part, _MAX_SAMPLED)), len(value)) for part in (dict.keys(value), dict.values(value))]
    if isinstance(value, (set, frozenset, deque)):
        return [(list(islice(value, _MAX_SAMPLED)), len(value))]
    get: Callable[[Any, int], Any]
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.reshape(-1) if value.flags.c_contiguous else value.flat
        get = type(value).__getitem__
    elif isinstance(value, (list, tuple)):
        get = list.__getitem__ if isinstance(value, list) else tuple.__getitem__
    else:
        return []
    places = range(0, len(value), max(1, len(value) // _MAX_SAMPLED))[:_MAX_SAMPLED]
    return [([get(value, place) for place in places], len(value))]


def _estimate(value: Any, depth: int, seen: set[int]) -> tuple[float, float]:
    """Return number and bytes of the objects in a value, itself included, without those seen before."""
    count, nbytes = 1.0, float(sys.getsizeof(value))
    for some, length in _sampled(value) if depth < _MAX_COUNTED_DEPTH else ():
        counted = [entry for entry in some if not _is_shared(entry)]
        own = {id(entry): entry for entry in counted if id(entry) not in seen}
        seen.update(own)
        if len(counted) >= _ENOUGH and 2 * len(own) <= len(counted):
            count += len(own)  # few objects that occur repeatedly, such as the names of classes
            continue
        for entry in own.values():
            inner = _estimate(entry, depth + 1, seen)
            count += inner[0] * length / len(some)
            nbytes += inner[1] * length / len(some)
    return count, nbytes


_MAX_SIZED, _MAX_SIZED_DEPTH = 8, 3
"""Entries of a container, and containers within each other, by which a size is estimated."""


def estimate_bytes(value: Any, depth: int = 0) -> float:
    """Estimate the memory that an object holds, its attributes and tensors included, in constant time."""
    if isinstance(value, torch.Tensor):
        return float(sys.getsizeof(value) + value.nbytes)
    nbytes = float(sys.getsizeof(value))
    if depth < _MAX_SIZED_DEPTH:
        for held, length in (*_sampled(value), *_sampled(dict(attributes(value)))):
            some = held[:: 1 + len(held) // _MAX_SIZED]
            nbytes += length * sum(estimate_bytes(entry, depth + 1) for entry in some) / max(1, len(some))
    return nbytes


def _is_shared(value: Any) -> bool:
    return value is None or isinstance(value, (bool, type)) or (type(value) is int and value in _SMALL_INTS)
