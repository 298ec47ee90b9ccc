"""Where each experiment read its data from: bytes that processes asked for, against bytes that came from storage."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from bottleneck.measure.files import Mount, mapped_data, mount_of, named_paths, open_data, read_mounts
from bottleneck.measure.ladder import Arm, Ladder, reads_storage
from bottleneck.results.evidence import Reads, ReadsOfExperiment

# Read-ahead and metadata make a few bytes come from storage even when all data is cached.
_WARM_SHARE = 0.05
_LEAST_BYTES_PER_SAMPLE = 1024
"""Less is the loader's own queues, not the data."""
_LEAST_OF_MAPPED = 2048
"""Bytes of mapped files that a sample reads from the disk at least, where that is where they are read from."""

Source = Literal["page cache", "disk", "unknown", "none"]
_LABELS: Mapping[Source, str] = {"page cache": "warm", "disk": "cold", "none": "none"}


@dataclass(frozen=True)
class IoCounters:
    """Bytes that processes asked for, those of them that came from storage, the calls, and the samples made of it."""

    requested: int = 0
    storage: int = 0
    calls: int = 0
    samples: int = 0

    def __add__(self, other: IoCounters) -> IoCounters:
        return IoCounters(
            self.requested + other.requested,
            self.storage + other.storage,
            self.calls + other.calls,
            self.samples + other.samples,
        )

    def __sub__(self, other: IoCounters) -> IoCounters:
        return self + IoCounters(-other.requested, -other.storage, -other.calls, -other.samples)


_NOTHING = IoCounters()


def read_counters(pids: Iterable[int]) -> IoCounters | None:
    """Return what processes have read so far; None where the system does not say."""
    try:
        return _sum_of_processes([psutil.Process(pid) for pid in pids])
    except psutil.Error:
        return None


def _sum_of_processes(processes: Iterable[psutil.Process]) -> IoCounters | None:
    try:
        found = [process.io_counters() for process in processes]
        return sum((IoCounters(each.read_chars, each.read_bytes, each.read_count) for each in found), _NOTHING)
    except (psutil.Error, OSError, ValueError, RuntimeError, AttributeError):  # gone, not ours, or not of Linux
        return None


@dataclass(frozen=True)
class BlindSpots:
    """What the counters leave out.

    Attributes:
        uncounted: Kinds of file systems with data of the job whose reads are not counted; '' for one that may be.
        maps: The workers have data files mapped into memory, which they read without asking.
    """

    uncounted: tuple[str, ...] = ()
    maps: bool = False


def find_blind_spots(dataset: Any, pids: Sequence[int], mounts: Sequence[Mount] | None = None) -> BlindSpots:
    """Look where the data of a job lies.

    Args:
        dataset: The user's dataset.
        pids: The processes that load.
        mounts: What is mounted; None: as the system says.
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
    """Reads the I/O counters of processes: whether each experiment read from storage or from the page cache."""

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
        """Return the counters now; None where the system does not say."""
        return _sum_of_processes(self._processes) if self._processes else None

    def add(self, arm: Arm, before: IoCounters | None, samples: int) -> None:
        """Count one block of an arm in which the loader works."""
        after = self.read()
        if before is not None and after is not None and arm.mode is not None:
            self._by_arm[arm] = self._by_arm.get(arm, _NOTHING) + after - before + IoCounters(samples=samples)

    def summary(self, ladder: Ladder | None = None) -> Reads:
        """Return bytes per sample and where they came from, of all experiments that load but the one with cold files.

        Args:
            ladder: Names the experiments.
        """
        total = self._sum(arm for arm in self._by_arm if reads_storage(arm) and not arm.cold)
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
        """Say where the blocks of an arm got their data from."""
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
                    "Network file systems are mounted, whose reads are not counted, and where the dataset keeps its "
                    "data is not known."
                )
        if self._spots.maps:
            yield "Files mapped into memory are read without asking: the bytes asked for leave them out."


def name_source(read: IoCounters, spots: BlindSpots) -> Source:
    """Say where data came from."""
    asks = read.requested >= _LEAST_BYTES_PER_SAMPLE * read.samples
    # What is read of mapped files without asking is not known: a page for every second sample is no exception.
    mapped_only = spots.maps and not asks
    most = _LEAST_OF_MAPPED * read.samples if mapped_only else _WARM_SHARE * max(read.requested, read.samples)
    if read.storage > most:
        return "disk"
    if spots.uncounted:
        return "unknown"
    return "page cache" if asks or spots.maps else "none"
