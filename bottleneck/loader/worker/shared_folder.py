"""The folder that the processes of one diagnosis share.

A diagnosis that is killed cannot remove its own; the next one does. Whether the owner lives is known by a lock, not by
its process id, which means nothing in another container that shares the memory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # Windows has none

CONTROL = "control"
_PREFIX = "torch-bottleneck-"
_SHARED_MEMORY = Path("/dev/shm")
_MAY_BE_NEW_S = 60.0
"""A folder that is younger may belong to a diagnosis that has not locked it yet."""


def make_folder(size: int) -> tuple[Path, IO[bytes]]:
    """Make a folder with a control file, in shared memory if a file of this size fits there, else elsewhere.

    Args:
        size: Of the control file, in bytes; it is filled with zeros.

    Returns:
        The folder, and its open control file; as long as that is open, here or in a process forked from here, no
        other diagnosis removes the folder.
    """
    for parent in (_SHARED_MEMORY, Path(tempfile.gettempdir())):
        if not os.access(parent, os.W_OK):
            continue
        remove_abandoned(parent)
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
        try:
            return folder, _open_control(folder, size)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
    raise OSError("no space for a temporary file of 4 KiB")


def _open_control(folder: Path, size: int) -> IO[bytes]:
    control = (folder / CONTROL).open("w+b")
    try:
        control.write(bytes(size))
        control.flush()
        if hasattr(os, "posix_fallocate"):
            # A full tmpfs must fail here, not as a bus error at the first write through the map.
            os.posix_fallocate(control.fileno(), 0, size)
    except OSError:
        control.close()
        raise
    _lock(control)
    return control


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of our own user whose owner and all of its workers are gone."""
    if fcntl is None:
        return
    for folder in _old_folders(parent):
        with contextlib.suppress(OSError), (folder / CONTROL).open("r+b") as control:
            if _lock(control):
                shutil.rmtree(folder, ignore_errors=True)


def _old_folders(parent: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for folder in parent.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                found = folder.lstat()
                if found.st_uid == os.getuid() and time.time() - found.st_mtime > _MAY_BE_NEW_S:
                    yield folder


def _lock(control: IO[bytes]) -> bool:
    """Lock a file until it is closed; return whether it was free."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(control.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
