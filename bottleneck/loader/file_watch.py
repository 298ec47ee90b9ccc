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

import psutil

MOST_FILES = 50_000
"""Files that are noted in one worker; a pool of samples that opens more is refused."""
_READERS_IN_C = (("cv2", "imread"), ("torchvision.io.image", "read_file"))


@dataclass(frozen=True)
class NotedFiles:
    """What one worker opened.

    Attributes:
        opened: Absolute paths, in the order of opening, each once.
        requested_bytes: What the worker asked for meanwhile; None where that is unknown.
        too_many: There were more than are noted.
    """

    opened: tuple[str, ...]
    opens: int
    requested_bytes: int | None
    too_many: bool


class FileWatch:
    """Notes files between two switches."""

    def __init__(self) -> None:
        self.active = False
        self._installed = False
        self._opened: dict[str, None] = {}
        self._opens = 0
        self._too_many = False
        self._before_bytes: int | None = None
        self._unwrap: list[Callable[[], None]] = []

    def start(self) -> None:
        if not self._installed:
            self._installed = True
            sys.addaudithook(self._hook)
        for module, name in _READERS_IN_C:
            self._wrap(sys.modules.get(module), name)
        self._before_bytes = _requested_bytes()
        self.active = True

    def stop(self) -> NotedFiles:
        self.active = False
        for unwrap in self._unwrap:
            unwrap()
        self._unwrap.clear()
        now = _requested_bytes()
        known = now is not None and self._before_bytes is not None
        asked = (now or 0) - (self._before_bytes or 0) if known else None
        return NotedFiles(tuple(self._opened), self._opens, asked, self._too_many)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self.active and event == "open":
            path, _, flags = args
            self.note(path, flags)

    def note(self, path: Any, flags: int = os.O_RDONLY) -> None:
        """Note one file; what is opened for writing alone is none."""
        if not isinstance(path, (str, bytes, os.PathLike)) or flags & os.O_ACCMODE == os.O_WRONLY:
            return
        self._opens += 1
        name = os.fsdecode(path)
        if name in self._opened:
            return
        if len(self._opened) >= MOST_FILES:
            self._too_many = True
            return
        self._opened[name if os.path.isabs(name) else os.path.abspath(name)] = None

    def _wrap(self, module: Any, name: str) -> None:
        """Let a reader in C note its file; only in this process, and only meanwhile."""
        original = getattr(module, name, None)
        if original is None:
            return

        @wraps(original)
        def noting(path: Any, *args: Any, **kwargs: Any) -> Any:
            self.note(path)
            return original(path, *args, **kwargs)

        setattr(module, name, noting)
        self._unwrap.append(lambda: setattr(module, name, original))


def _requested_bytes() -> int | None:
    try:
        return int(psutil.Process().io_counters().read_chars)
    except (AttributeError, OSError, psutil.Error):  # not on every system
        return None
