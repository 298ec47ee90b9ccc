"""Which file system a path lies on: some count no reads, and some have nothing that could be dropped from memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

_REMOTE = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "afs", "ceph", "glusterfs", "lustre", "beegfs"),
    *("gpfs", "orangefs", "pvfs2", "panfs", "wekafs", "quobyte"),
}
_IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}


@dataclass(frozen=True)
class Mount:
    """A file system and where it is mounted."""

    point: str
    kind: str

    @property
    def counts_reads(self) -> bool:
        """Whether what a process reads from its storage shows in /proc/<pid>/io: the kernel counts block devices."""
        return self.kind not in _REMOTE and not self.kind.startswith("fuse")

    @property
    def in_memory(self) -> bool:
        """Whether its files are nowhere but in memory."""
        return self.kind in _IN_MEMORY


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
