"""Things in a dataset that processes cannot share: open files, archives, databases and connections; tokenizers.

A worker that is forked gets the very same file descriptor, with one position that all processes move.
"""

from __future__ import annotations

import io
import socket
from dataclasses import dataclass
from typing import Any

from bottleneck.job.contents import walk
from bottleneck.job.key_paths import resolve
from bottleneck.job.recipes.interface import KeyPath

_UNSAFE = frozenset({
    "h5py.File", "h5py.Group", "h5py.Dataset", "lmdb.Environment", "lmdb.Transaction", "zipfile.ZipFile",
    "tarfile.TarFile", "sqlite3.Connection", "netCDF4.Dataset", "tables.File", "rasterio.DatasetReader",
    "psycopg2.connection", "psycopg.Connection", "pymongo.MongoClient", "redis.Redis", "requests.Session",
    "decord.VideoReader", "av.InputContainer",
})  # fmt: skip
"""Package and class; the modules between the two differ from version to version."""
_MOST_FOUND = 20


@dataclass(frozen=True)
class Handle:
    """Something open in a dataset.

    Attributes:
        path: Keys from the dataset.
        name: The same in words, such as `self.file`.
        kind: Package and class, such as `h5py.File`.
        identity: Of the object, in the process that looked: a forked worker finds the same one, or has opened its own.
    """

    path: KeyPath
    name: str
    kind: str
    identity: int


def find_handles(dataset: Any) -> tuple[Handle, ...]:
    """Return what a dataset holds open that is not safe to use from several processes."""
    found: list[Handle] = []
    for held in walk(dataset, "self", stop_at=lambda value: handle_kind(value) is not None):
        kind = handle_kind(held.value)
        if kind is not None and _is_open(held.value):
            found.append(Handle(held.path, held.name, kind, id(held.value)))
            if len(found) == _MOST_FOUND:
                break
    return tuple(found)


def is_inherited(handle: Handle, dataset: Any) -> bool:
    """Whether a worker's copy of the dataset still uses what was found open before the fork."""
    try:
        value = resolve(dataset, handle.path)
        return id(value) == handle.identity and handle_kind(value) == handle.kind and _is_open(value)
    except Exception:  # noqa: BLE001 - the worker has put something else in its place
        return False


def handle_kind(value: Any) -> str | None:
    """Return package and class of what is not safe to share between processes; None for anything else."""
    if isinstance(value, socket.socket):
        return "socket.socket"
    if isinstance(value, io.IOBase):
        return _kind_of_file(value)
    for cls in type(value).__mro__:
        name = f"{cls.__module__.partition('.')[0]}.{cls.__name__}"
        if name in _UNSAFE:
            return name
    return None


def _kind_of_file(value: Any) -> str | None:
    """Files that are read; a log that is written to does no harm."""
    try:
        value.fileno()
        return "an open file" if value.readable() else None
    except (OSError, ValueError):  # in memory, or closed
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
    except Exception:  # noqa: BLE001 - a type that cannot tell counts as open
        return True


def find_tokenizers(dataset: Any, collate_fn: Any) -> tuple[str, ...]:
    """Return names of the tokenizers with threads of their own that the dataset or the collate function uses."""
    found: dict[int, str] = {}
    for root, name in ((dataset, "self"), (type(dataset).__dict__.get("__getitem__"), ""), (collate_fn, "collate_fn")):
        for held in walk(root, name, stop_at=_has_threads, functions=True):
            if _has_threads(held.value):
                found.setdefault(id(held.value), held.name)
    return tuple(found.values())[:_MOST_FOUND]


def _has_threads(value: Any) -> bool:
    """Whether this is a tokenizer of Hugging Face's `tokenizers`, or one of `transformers` around such a one."""
    for cls in type(value).__mro__:
        package = cls.__module__.partition(".")[0]
        if package == "tokenizers" and cls.__name__ == "Tokenizer":
            return True
        if package == "transformers" and cls.__name__ in ("PreTrainedTokenizerFast", "TokenizersBackend"):
            return True
    return False
