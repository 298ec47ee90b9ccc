"""Where the data of a job lies, without reading any: files that a dataset names, holds open or maps, and mounts."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from bottleneck.measure.limits import PROC

_MOST_VALUES, _MOST_ATTRIBUTES = 500, 64
"""Values of a dataset that are looked at, and of one object in it."""
_FIRST_OF_LIST = 3
"""Of a list of files the first ones: the others lie in the same folders."""
_NO_DATA = (".py", ".pyc", ".pyi", ".pth", ".mo", ".so", ".pem")
_NOT_ON_DISK = ("/dev/", "/proc/", "/sys/", "/run/", "/memfd:", "/SYSV", "/anon_hugepage")
_GONE = " (deleted)"
_REMOTE = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "afs", "ceph", "glusterfs", "lustre", "beegfs"),
    *("gpfs", "orangefs", "pvfs2", "panfs", "wekafs", "quobyte"),
}


# --- files --------------------------------------------------------------------------------------------------


def is_data(path: str) -> bool:
    """Whether a path may be that of a data file: no code, no device, nothing that has been deleted."""
    if not path.startswith("/") or (path.startswith(_NOT_ON_DISK) and not path.startswith("/dev/shm/")):
        return False
    name = os.path.basename(path)
    if path.startswith("/dev/shm/") and name.startswith(("torch_", "sem.", "psm_")):
        return False
    return not path.endswith((_GONE, *_NO_DATA)) and ".so." not in name and "/torch-bottleneck-" not in path


def named_paths(dataset: Any) -> list[str]:
    """Return the existing files and folders that a dataset's attributes name, such as `root` or `samples`."""
    found = (path for path in _texts(dataset) if os.sep in path)
    return list(dict.fromkeys(path for path in found if _exists(path)))


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)
    except (OSError, ValueError):  # a name that is none, such as one with a null in it
        return False


def _texts(dataset: Any) -> Iterator[str]:
    """Yield the texts among the values that a dataset holds, the nearest first; a bounded number is looked at."""
    values, seen = deque([dataset]), 0
    while values and seen < _MOST_VALUES:
        value, seen = values.popleft(), seen + 1
        if isinstance(value, (str, os.PathLike)):
            text = os.fspath(value)
            if isinstance(text, str):
                yield text
        elif isinstance(value, (list, tuple)):
            values.extend(value[:_FIRST_OF_LIST])
        elif not isinstance(value, type) and isinstance(getattr(value, "__dict__", None), dict):
            values.extend(islice(list(vars(value).values()), _MOST_ATTRIBUTES))


def mapped_data(pids: Iterable[int], root: Path = PROC) -> list[str]:
    """Return the data files that processes have mapped into their memory.

    psutil would find the same in `smaps`, for which the kernel walks all page tables.
    """
    found: dict[str, None] = {}
    code: set[str] = set()
    for pid in pids:
        try:
            lines = (root / str(pid) / "maps").read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            fields = line.split(maxsplit=5)
            if len(fields) < 6 or not is_data(fields[5]):
                continue
            if "x" in fields[1]:
                code.add(fields[5])
            found[fields[5]] = None
    return [path for path in found if path not in code and not _is_system(path)]


def _is_system(path: str) -> bool:
    return path.startswith(("/usr/lib/locale/", "/usr/share/", "/usr/lib/", "/lib/", "/etc/", "/var/cache/"))


def open_data(pids: Iterable[int]) -> list[str]:
    """Return the data files that processes keep open for reading."""
    found: dict[str, None] = {}
    for pid in pids:
        try:
            files = psutil.Process(pid).open_files()
        except (psutil.Error, OSError):
            continue
        reads = (file.path for file in files if getattr(file, "mode", "r") not in ("w", "a"))
        found.update(dict.fromkeys(path for path in reads if is_data(path)))
    return list(found)


# --- file systems -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mount:
    """A file system and where it is mounted."""

    point: str
    kind: str

    @property
    def counts_reads(self) -> bool:
        """Whether what a process reads from its storage shows in /proc/<pid>/io: the kernel counts block devices."""
        return self.kind not in _REMOTE and not self.kind.startswith("fuse")


def read_mounts() -> tuple[Mount, ...]:
    """Return what is mounted, in the order of mounting; nothing where the system does not say."""
    try:
        return tuple(Mount(each.mountpoint, each.fstype) for each in psutil.disk_partitions(all=True))
    except (psutil.Error, OSError):
        return ()


def mount_of(path: str | os.PathLike[str], mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that a path lies on: the longest that holds it, of several at one point the last."""
    real = os.path.realpath(path)
    best = None
    for mount in mounts:
        holds = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
        if holds and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best
