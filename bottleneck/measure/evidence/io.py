"""Source of each experiment's data: bytes that processes requested, against bytes that came from storage."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from operator import add
from pathlib import Path
from typing import Any, Literal

import psutil

from bottleneck.job.inspect import walk
from bottleneck.measure.ladder import Arm, Ladder, reads_storage
from bottleneck.measure.machine.limits import PROC
from bottleneck.results.evidence import Reads, ReadsOfExperiment

_WARM_SHARE = 0.05
"""Share of the requested bytes that read-ahead and metadata read from storage even if all data is cached."""
_MIN_BYTES_PER_SAMPLE = 1024
"""Bytes below which the reads are those of the loader's own queues, not of the data."""
_MIN_OF_MAPPED = 2048
"""Bytes of mapped files that a sample reads from disk, at least, if they are read from there."""

Source = Literal["page cache", "disk", "unknown", "none"]
_LABELS: Mapping[Source, str] = {"page cache": "warm", "disk": "cold", "none": "none"}
_MAX_VALUES = 500
"""Values of a dataset that are examined."""
_FIRST_OF_LIST = 3
"""Values of one list in it that are examined."""
_NO_DATA = (".py", ".pyc", ".pyi", ".pth", ".mo", ".so", ".pem")
_NOT_ON_DISK = ("/dev/", "/proc/", "/sys/", "/run/", "/memfd:", "/SYSV", "/anon_hugepage")
_OF_THE_SYSTEM = ("/usr/lib/", "/usr/share/", "/lib/", "/etc/", "/var/cache/")
_GONE = " (deleted)"
_REMOTE = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "afs", "ceph", "glusterfs", "lustre", "beegfs"),
    *("gpfs", "orangefs", "pvfs2", "panfs", "wekafs", "quobyte"),
}


# --- counters ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IoCounters:
    """Bytes that processes requested, those of them that came from storage, the calls, and the samples made of them."""

    requested: int = 0
    storage: int = 0
    calls: int = 0
    samples: int = 0

    def __add__(self, other: IoCounters) -> IoCounters:
        return IoCounters(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: IoCounters) -> IoCounters:
        return self + IoCounters(-other.requested, -other.storage, -other.calls, -other.samples)


_NOTHING = IoCounters()


def read_counters(pids: Iterable[int]) -> IoCounters | None:
    """Return the reads of processes so far; None if the system does not report them."""
    return _sum_of_processes(map(psutil.Process, pids))


def _sum_of_processes(processes: Iterable[psutil.Process]) -> IoCounters | None:
    try:
        found = [process.io_counters() for process in processes]
        return sum((IoCounters(each.read_chars, each.read_bytes, each.read_count) for each in found), _NOTHING)
    except (psutil.Error, OSError, ValueError, RuntimeError, AttributeError):  # gone, of others, or not on Linux
        return None


@dataclass(frozen=True)
class BlindSpots:
    """Reads that the counters miss.

    Attributes:
        uncounted: Kinds of file systems with data of the job whose reads are not counted; '' for one that may be.
        maps: True if the workers have mapped data files, which they read without calls.
    """

    uncounted: tuple[str, ...] = ()
    maps: bool = False


def find_blind_spots(dataset: Any, pids: Sequence[int], mounts: Sequence[Mount] | None = None) -> BlindSpots:
    """Find file systems and mapped files of a job's data whose reads are not counted.

    Args:
        dataset: The user's dataset.
        pids: The processes that load.
        mounts: Mounted file systems; None for those of the system.
    """
    mapped = mapped_data(pids)
    mounts = read_mounts() if mounts is None else mounts
    if all(mount.counts_reads for mount in mounts):
        return BlindSpots(maps=bool(mapped))
    paths = [*named_paths(dataset), *open_data(pids), *mapped]
    found = [mount for path in paths if (mount := mount_of(path, mounts)) is not None]
    uncounted = tuple(dict.fromkeys(mount.kind for mount in found if not mount.counts_reads))
    return BlindSpots(uncounted if found else ("",), bool(mapped))


class StorageReads:
    """Reads the I/O counters of processes, and decides if experiments read from storage or from the page cache."""

    def __init__(self) -> None:
        self._processes: list[psutil.Process] = []
        self._known = False
        self._spots = BlindSpots()
        self._by_arm: dict[Arm, IoCounters] = {}

    def start(self, workers: Sequence[int], spots: BlindSpots | None = None) -> None:
        """Watch these processes; with no workers, this one."""
        try:
            self._processes = [psutil.Process(pid) for pid in workers or (os.getpid(),)]
        except psutil.Error:
            self._processes = []
        self._known = self.read() is not None
        self._spots = spots or BlindSpots()

    def read(self) -> IoCounters | None:
        """Return the current counters; None if the system does not report them."""
        return _sum_of_processes(self._processes) if self._processes else None

    def add(self, arm: Arm, before: IoCounters | None, samples: int) -> None:
        """Count one block of an arm in which the loader works."""
        after = self.read()
        if before is not None and after is not None and arm.mode is not None:
            self._by_arm[arm] = self._by_arm.get(arm, _NOTHING) + after - before + IoCounters(samples=samples)

    def summary(self, ladder: Ladder | None = None) -> Reads:
        """Return bytes per sample and their source, for all experiments that load and need no preparation.

        Args:
            ladder: Names the experiments.
        """
        total = self._sum(arm for arm in self._by_arm if reads_storage(arm) and arm.preparation is None)
        if not self._known or not total.samples:
            return Reads()
        return Reads(
            requested_bytes_per_sample=total.requested / total.samples,
            storage_bytes_per_sample=total.storage / total.samples,
            label=_LABELS[name_source(total, BlindSpots())],
            experiments=tuple(self._experiments(ladder)),
            missing=tuple(self._missing()),
        )

    def source(self, arm: Arm) -> Source:
        """Return the source of the data in the blocks of an arm."""
        return name_source(self._sum([arm]), self._spots)

    def _sum(self, arms: Iterable[Arm]) -> IoCounters:
        return sum((self._by_arm.get(arm, _NOTHING) for arm in arms), _NOTHING)

    def _experiments(self, ladder: Ladder | None) -> Iterator[ReadsOfExperiment]:
        for rung in ladder.rungs if ladder is not None else ():
            read = self._sum(arm for arm in (rung.coupled, rung.drained, rung.workers) if arm is not None)
            if read.samples and rung.reason is None:
                loads = rung.coupled is not None and reads_storage(rung.coupled)
                yield ReadsOfExperiment(
                    name=rung.name,
                    asked_bytes_per_sample=read.requested / read.samples,
                    storage_bytes_per_sample=read.storage / read.samples,
                    calls_per_sample=read.calls / read.samples,
                    source=name_source(read, self._spots if loads else BlindSpots()),
                )

    def _missing(self) -> Iterator[str]:
        for kind in self._spots.uncounted:
            if kind:
                yield f"Data of this job is on {kind}; reads from there, and its page cache, are not counted."
            else:
                yield (
                    "Network file systems are mounted, whose reads are not counted, and it is unknown where the "
                    "dataset keeps its data."
                )
        if self._spots.maps:
            yield "Files mapped into memory are read without calls, so the requested bytes do not include them."


def name_source(read: IoCounters, spots: BlindSpots) -> Source:
    """Return the source of reads."""
    asks = read.requested >= _MIN_BYTES_PER_SAMPLE * read.samples
    # Reads of mapped files without calls are not counted: a page for every second sample is not an exception.
    mapped_only = spots.maps and not asks
    most = _MIN_OF_MAPPED * read.samples if mapped_only else _WARM_SHARE * max(read.requested, read.samples)
    if read.storage > most:
        return "disk"
    if spots.uncounted:
        return "unknown"
    return "page cache" if asks or spots.maps else "none"


# --- files --------------------------------------------------------------------------------------------------


def is_data(path: str) -> bool:
    """Return True if a path may be that of a data file, not of code, a device or a deleted file."""
    if not path.startswith("/") or (path.startswith(_NOT_ON_DISK) and not path.startswith("/dev/shm/")):
        return False
    name = os.path.basename(path)
    if path.startswith("/dev/shm/") and name.startswith(("torch_", "sem.", "psm_")):
        return False
    return not path.endswith((_GONE, *_NO_DATA)) and ".so." not in name and "/torch-bottleneck-" not in path


def named_paths(dataset: Any) -> list[str]:
    """Return the existing files and folders that a dataset's attributes name, such as `root` or `samples`."""
    found: dict[str, None] = {}
    for held in islice(walk(dataset), _MAX_VALUES):
        # The first files of a list: the others are in the same folders.
        first = held.value[:_FIRST_OF_LIST] if isinstance(held.value, (list, tuple)) else [held.value]
        for value in (part for each in first for part in (each if isinstance(each, tuple) else (each,))):
            path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
            if isinstance(path, str) and os.sep in path and os.path.exists(path):
                found[path] = None
    return list(found)


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
    return [path for path in found if path not in code and not path.startswith(_OF_THE_SYSTEM)]


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
    """A file system and its mount point."""

    point: str
    kind: str

    @property
    def counts_reads(self) -> bool:
        """True if a process's reads from its storage appear in /proc/<pid>/io: the kernel counts block devices only."""
        return self.kind not in _REMOTE and not self.kind.startswith("fuse")


def read_mounts() -> tuple[Mount, ...]:
    """Return the mounted file systems in the order of mounting; empty if the system does not report them."""
    try:
        return tuple(Mount(each.mountpoint, each.fstype) for each in psutil.disk_partitions(all=True))
    except (psutil.Error, OSError):
        return ()


def mount_of(path: str | os.PathLike[str], mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount of a path: the longest match, and the last of several at one point."""
    real = os.path.join(os.path.realpath(path), "")
    holding = [mount for mount in mounts if real.startswith(os.path.join(mount.point, ""))]
    return max(reversed(holding), key=lambda mount: len(mount.point), default=None)
