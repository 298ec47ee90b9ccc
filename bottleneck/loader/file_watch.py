"""Which files the user's code opens inside a worker, noted while that is asked for.

An audit hook sees every `open` of Python's. It cannot be taken away again, so that it is only ever installed in a
worker, and only for a diagnosis with cold files. What code in C opens by itself is found if it stays open or mapped;
two readers of images that open and close a file in one call are noted by their Python functions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

_MOST_FILES = 50_000
"""Files that are noted in one worker; of a pool that opens more, the others stay in memory, which is noticed."""
_READERS_IN_C = (("cv2", "imread"), ("torchvision.io.image", "read_file"))


@dataclass(frozen=True)
class NotedFiles:
    """What one worker opened."""

    opened: tuple[str, ...]
    """Absolute paths, in the order of opening, each once."""
    opens: int


class FileWatch:
    """Notes files between two switches."""

    def __init__(self) -> None:
        self._active = self._installed = False
        self._opened: dict[str, None] = {}
        self._opens = 0
        self._unwrap: list[Callable[[], None]] = []

    def start(self) -> None:
        if not self._installed:
            self._installed = True
            sys.addaudithook(self._hook)
        for module, name in _READERS_IN_C:
            self._wrap(sys.modules.get(module), name)
        self._active = True

    def stop(self) -> NotedFiles:
        self._active = False
        for unwrap in self._unwrap:
            unwrap()
        self._unwrap.clear()
        return NotedFiles(tuple(self._opened), self._opens)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self._active and event == "open":
            path, _, flags = args
            self._note(path, flags)

    def _note(self, path: Any, flags: int = os.O_RDONLY) -> None:
        """Note one file; what is opened for writing alone is none."""
        if not isinstance(path, (str, bytes, os.PathLike)) or flags & os.O_ACCMODE == os.O_WRONLY:
            return
        self._opens += 1
        name = os.fsdecode(path)
        if name not in self._opened and len(self._opened) < _MOST_FILES:
            self._opened[name if os.path.isabs(name) else os.path.abspath(name)] = None

    def _wrap(self, module: Any, name: str) -> None:
        """Let a reader in C note its file; only in this process, until `stop`."""
        original = getattr(module, name, None)
        if original is None:
            return

        @wraps(original)
        def noting(path: Any, *args: Any, **kwargs: Any) -> Any:
            self._note(path)
            return original(path, *args, **kwargs)

        setattr(module, name, noting)
        self._unwrap.append(lambda: setattr(module, name, original))
