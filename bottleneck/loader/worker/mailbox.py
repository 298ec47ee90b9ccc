"""Where the workers leave things for the main process, and it for them: files in the folder that they share."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Holds something of one kind from each worker; what a worker leaves later replaces what it left before."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._kind = folder, kind

    def write(self, worker: int, content: T) -> None:
        write_file(self._folder / f"{self._kind}-{worker}", content)

    def by_worker(self) -> dict[int, T]:
        return {int(path.name.split("-")[1]): read_file(path) for path in sorted(self._folder.glob(f"{self._kind}-*"))}

    def read(self) -> list[T]:
        return list(self.by_worker().values())


def write_file(path: Path, content: object) -> None:
    """Write a file that is there as a whole or not at all."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_bytes(pickle.dumps(content))
    temporary.replace(path)


def read_file(path: Path) -> Any:
    """Read a file. Only our own processes write here, into a folder that no other user may enter."""
    return pickle.loads(path.read_bytes())
