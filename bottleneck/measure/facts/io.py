"""Where each experiment read its data from: bytes that processes asked for, against bytes that came from storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bottleneck.measure.ladder import Arm, Ladder, reads_storage
from bottleneck.measure.system.data_paths import mapped_data, named_paths, open_data
from bottleneck.measure.system.file_systems import Mount, mount_of, read_mounts
from bottleneck.results.evidence import Reads, ReadsOfExperiment

# Read-ahead and metadata make a few bytes come from storage even when all data is cached.
_WARM_SHARE = 0.05
_LEAST_BYTES_PER_SAMPLE = 1024
"""Less is the loader's own queues, not the data."""
_LEAST_OF_MAPPED = 2048
"""Bytes of mapped files that a sample reads from the disk at least, where that is where they are read from."""

Source = Literal["page cache", "disk", "unknown", "none"]


@dataclass(frozen=True)
class IoCounters:
    """Bytes that processes asked for, those of them that came from storage, and the calls that asked."""

    requested: int
    storage: int
    calls: int = 0

    def __add__(self, other: IoCounters) -> IoCounters:
        requested, storage = self.requested + other.requested, self.storage + other.storage
        return IoCounters(requested, storage, self.calls + other.calls)

    def __sub__(self, other: IoCounters) -> IoCounters:
        return self + IoCounters(-other.requested, -other.storage, -other.calls)


def read_counters(pids: Iterable[int | str], root: Path = Path("/proc")) -> IoCounters | None:
    """Return what processes have read so far; None where the system does not tell.

    Args:
        pids: The processes.
        root: Where the kernel describes them.
    """
    total = IoCounters(0, 0)
    try:
        for pid in pids:
            lines = (root / str(pid) / "io").read_text().splitlines()
            fields = dict(line.split(": ") for line in lines)
            total += IoCounters(int(fields["rchar"]), int(fields["read_bytes"]), int(fields["syscr"]))
    except (OSError, ValueError, KeyError):
        return None
    return total


@dataclass
class _Read:
    counters: IoCounters = IoCounters(0, 0)
    samples: int = 0

    def add(self, counters: IoCounters, samples: int) -> None:
        self.counters += counters
        self.samples += samples


@dataclass(frozen=True)
class BlindSpots:
    """What the counters leave out.

    Attributes:
        uncounted: Kinds of file systems with data of the job whose reads are not counted; '' for one that may be.
        maps: The workers have data files mapped into memory, which they read without asking.
    """

    uncounted: tuple[str, ...] = ()
    maps: bool = False


def find_blind_spots(
    dataset: Any, pids: Iterable[int], mounts: tuple[Mount, ...] | None = None, root: Path = Path("/proc")
) -> BlindSpots:
    """Look where the data of a job lies.

    Args:
        dataset: The user's dataset.
        pids: The processes that load.
        mounts: What is mounted; None: as the system says.
        root: Where the kernel describes processes.
    """
    pids = tuple(pids)
    mapped = mapped_data(pids, root)
    mounts = read_mounts(root) if mounts is None else mounts
    if all(mount.counts_reads for mount in mounts):
        return BlindSpots(maps=bool(mapped))
    paths = [*named_paths(dataset), *open_data(pids, root), *mapped]
    found = [mount for path in paths if (mount := mount_of(path, mounts)) is not None]
    uncounted = tuple(dict.fromkeys(mount.kind for mount in found if not mount.counts_reads))
    return BlindSpots(uncounted if found else ("",), bool(mapped))


class StorageReads:
    """Tells from /proc/<pid>/io whether each experiment read from storage or from the page cache."""

    def __init__(self) -> None:
        self._pids: tuple[int, ...] = ()
        self._known = False
        self._spots = BlindSpots()
        self._by_arm: dict[Arm, _Read] = {}

    def start(self, workers: tuple[int, ...], spots: BlindSpots | None = None) -> None:
        """Watch these processes; with no workers, this one.

        Args:
            workers: Their ids.
            spots: What the counters leave out.
        """
        self._pids = workers
        self._known = self.read() is not None
        self._spots = spots or BlindSpots()

    def read(self) -> IoCounters | None:
        """Return the counters now; None where the system does not tell."""
        return read_counters(self._pids or ("self",))

    def add(self, arm: Arm, before: IoCounters | None, samples: int) -> IoCounters | None:
        """Count one block of an arm in which the loader works.

        Returns:
            What was read in it; None where that is not known.
        """
        after = self.read()
        if before is None or after is None or arm.mode is None:
            return None
        self._by_arm.setdefault(arm, _Read()).add(after - before, samples)
        return after - before

    def summary(self, ladder: Ladder | None = None) -> Reads:
        """Return bytes per sample and where they came from, of all experiments that load but the one with cold files.

        Args:
            ladder: Names the experiments.
        """
        total = self._sum(arm for arm in self._by_arm if reads_storage(arm) and not arm.cold)
        if not self._known or not total.samples:
            return Reads()
        return Reads(
            requested_bytes_per_sample=total.counters.requested / total.samples,
            storage_bytes_per_sample=total.counters.storage / total.samples,
            label=_label(total),
            experiments=tuple(self._experiments(ladder)),
            missing=tuple(self._missing()),
        )

    def source(self, arm: Arm) -> Source:
        """Say where the blocks of an arm got their data from."""
        return name_source(self._sum([arm]).counters, self._sum([arm]).samples, self._spots)

    def _sum(self, arms: Iterable[Arm]) -> _Read:
        total = _Read()
        for arm in arms:
            read = self._by_arm.get(arm, _Read())
            total.add(read.counters, read.samples)
        return total

    def _experiments(self, ladder: Ladder | None) -> Iterator[ReadsOfExperiment]:
        for rung in ladder.rungs if ladder is not None else ():
            read = self._sum(arm for arm in (rung.coupled, rung.drained, rung.workers) if arm is not None)
            if read.samples and rung.reason is None:
                loads = rung.coupled is not None and reads_storage(rung.coupled)
                yield ReadsOfExperiment(
                    name=rung.name,
                    asked_bytes_per_sample=read.counters.requested / read.samples,
                    storage_bytes_per_sample=read.counters.storage / read.samples,
                    calls_per_sample=read.counters.calls / read.samples,
                    source=name_source(read.counters, read.samples, self._spots if loads else BlindSpots()),
                )

    def _missing(self) -> Iterable[str]:
        for kind in self._spots.uncounted:
            if kind:
                yield f"Data of this job is on {kind}; reads from there are not counted, nor told from the page cache."
            else:
                yield (
                    "Network file systems are mounted, whose reads are not counted, and where the dataset keeps its "
                    "data is not known."
                )
        if self._spots.maps:
            yield "Files mapped into memory are read without asking: the bytes asked for leave them out."


def name_source(read: IoCounters, samples: int, spots: BlindSpots) -> Source:
    """Say where data came from.

    Args:
        read: What was read.
        samples: Samples that it was read for.
        spots: What the counters leave out.
    """
    asks = read.requested >= _LEAST_BYTES_PER_SAMPLE * samples
    # What is read of mapped files without asking is not known: a page for every second sample is no exception.
    most = _LEAST_OF_MAPPED * samples if spots.maps and not asks else _WARM_SHARE * max(read.requested, samples)
    if read.storage > most:
        return "disk"
    if spots.uncounted:
        return "unknown"
    if asks or spots.maps:
        return "page cache"
    return "none"


def _label(read: _Read) -> str:
    if read.counters.storage > _WARM_SHARE * max(read.counters.requested, 1):
        return "cold"
    nothing = read.counters.requested < _LEAST_BYTES_PER_SAMPLE * read.samples and not read.counters.storage
    return "none" if nothing else "warm"
