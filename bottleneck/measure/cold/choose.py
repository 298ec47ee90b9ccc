"""Chooses the batches of the experiment `cold`, finds their files, and checks whether dropping those works."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from bottleneck.loader import modes
from bottleneck.loader.file_watch import NotedFiles
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.cold.page_cache import DataFile, can_drop
from bottleneck.measure.cold.pool import ColdPool, NoColdError, pool_sizes
from bottleneck.measure.evidence.io import IoCounters, read_counters
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.files import is_data, mapped_data, mount_of, open_data, read_mounts

BUDGET_SHARE = 0.08
"""The share of the budget after which a pool is read no further."""
_MOST_TIMES_OVER = 3
"""How far reading the smallest pool may exceed that."""
_MEMORY_SHARE = 0.5
"""The share of the free memory that the pool's files may take; more might not stay there."""
_EXPLAINED = 0.5
"""The share of the bytes asked for that has to be explained: by the files found, or by reads from storage."""
_MOST_IN_MEMORY = 0.5
"""The share of the files' bytes that may lie on a file system in memory."""
_LEAST_BYTES_PER_SAMPLE = 1024


def make_cold_pool(
    loader: SwitchedLoader, clock: Callable[[], float], *, limit_s: float, free_bytes: int, seed: int
) -> ColdPool:
    """Choose a pool of batches, find the files that they are read from, and check whether those can be dropped.

    Args:
        loader: The running loader; it was made to note files. It rests afterwards, with the pool in memory.
        clock: Seconds from any beginning.
        limit_s: Time after which the pool is read no further.
        free_bytes: Memory that is free.
        seed: Of the pages that are probed.

    Raises:
        NoColdError: It cannot be done, or not be verified.
        MeasurementError: The user's code failed, or a worker.
    """
    if not loader.num_workers:
        raise NoColdError("num_workers is 0, and files can be followed in workers only: set num_workers=1")
    if loader.iterable:
        raise NoColdError("the dataset is a stream, which cannot be asked for the same samples again")
    if not can_drop():
        raise NoColdError("this system cannot drop single files from memory")
    with loader_failures("raw"):
        batches, samples = _read_pool(loader, clock, limit_s)
        noted = loader.files()
        files = _data_files(noted, loader.workers)
        _check_storage(files)
        asked = _check_files(files, noted, free_bytes)
        pool = ColdPool(loader, files, batches, samples, seed)
        dropped = pool.drop()
        before = read_counters(loader.workers)
        pool.warm()
        loader.rest()
        after = read_counters(loader.workers)
    if before is None or after is None:
        raise NoColdError("this system does not report what the workers read")
    _check_reads(after - before, asked, samples, files, noted, dropped=dropped)
    return pool


def _read_pool(loader: SwitchedLoader, clock: Callable[[], float], limit_s: float) -> tuple[int, int]:
    """Let the workers read a pool and note its files; return its batches, and the samples in them."""
    sizes = pool_sizes(loader.num_workers, loader.queue_length)
    there = loader.order.fill_pool(sizes.wanted)
    if there < sizes.least:
        raise NoColdError(f"the dataset has {there} batches, and {sizes.least} are needed that do not repeat")
    loader.switch_real(modes.NOTE_FILES)
    started, taken, samples = clock(), 0, 0
    while taken < there and not (clock() - started > limit_s and taken >= sizes.least):
        samples += loader.next_batch()[1]
        taken += 1
        if clock() - started > _MOST_TIMES_OVER * limit_s and taken < sizes.least:
            loader.rest()
            raise NoColdError(
                f"reading the {sizes.least} batches that it needs takes too long for the budget; give it a larger one"
            )
    loader.rest()
    # A worker leaves what it has noted when it begins a batch in another mode.
    for _ in range(4 * loader.num_workers):
        if len(loader.files()) >= loader.num_workers:
            break
        loader.next_batch()
    loader.trim_pool(taken)
    return taken, samples


def _data_files(noted: list[NotedFiles], workers: tuple[int, ...]) -> tuple[DataFile, ...]:
    """Return the files that the workers opened, or keep open or mapped, that exist and hold anything."""
    opened = (path for files in noted for path in files.opened if is_data(path))
    paths = dict.fromkeys([*opened, *open_data(workers), *mapped_data(workers)])
    return tuple(file for path in paths if (file := _data_file(path)) is not None)


def _data_file(path: str) -> DataFile | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return DataFile(path, found.st_size) if stat.S_ISREG(found.st_mode) and found.st_size > 0 else None


def _check_storage(files: tuple[DataFile, ...]) -> None:
    """Refuse files that are on no storage.

    Raises:
        NoColdError: Most bytes of them lie on a file system that is nowhere but in memory.
    """
    mounts = read_mounts()
    held = [(file.size_bytes, mount) for file in files if (mount := mount_of(file.path, mounts)) and mount.in_memory]
    if sum(size for size, _ in held) > _MOST_IN_MEMORY * sum(file.size_bytes for file in files):
        raise NoColdError(f"the files are on {held[0][1].kind}, which is memory, so that no storage is read")


def _check_files(files: tuple[DataFile, ...], noted: list[NotedFiles], free_bytes: int) -> int:
    """Return what the workers asked for while they noted files.

    Raises:
        NoColdError: The files are not all known, or do not fit into memory.
    """
    if any(found.too_many for found in noted):
        raise NoColdError("its samples open more files than can be followed")
    if not files:
        raise NoColdError("the dataset opens no file that could be followed")
    asked = [found.requested_bytes for found in noted if found.requested_bytes is not None]
    if len(asked) < len(noted) or not asked:
        raise NoColdError("this system does not report what the workers read")
    if min(sum(asked), sum(file.size_bytes for file in files)) > _MEMORY_SHARE * free_bytes:
        raise NoColdError("the files of a few batches do not fit into the memory that is free")
    return sum(asked)


def _check_reads(
    read: IoCounters,
    asked: int,
    samples: int,
    files: tuple[DataFile, ...],
    noted: list[NotedFiles],
    *,
    dropped: bool,
) -> None:
    """Check whether reading the pool with its files dropped read them from storage.

    Args:
        read: What the workers read then.
        asked: What they had asked for the first time.
        samples: Samples in the pool.
        files: The files that were dropped.
        noted: What the workers opened.
        dropped: It was verified that the files were in memory and are no more.

    Raises:
        NoColdError: They did not, or not surely.
    """
    if asked > _LEAST_BYTES_PER_SAMPLE * samples > 0 and read.requested < (1 - _EXPLAINED) * asked:
        raise NoColdError("the dataset keeps in its own memory what it has read, so that it reads nothing twice")
    from_storage = read.storage >= _EXPLAINED * max(read.requested, _LEAST_BYTES_PER_SAMPLE * samples)
    opens = sum(found.opens for found in noted)
    known_bytes = sum(file.size_bytes for file in files) * max(1.0, opens / len(files))
    if from_storage or (dropped and known_bytes >= _EXPLAINED * asked):
        return
    if not dropped:
        raise NoColdError("little of its files was in memory, so it cannot be verified that dropping them works")
    raise NoColdError(
        "the files that were found explain less than half of the bytes that the workers ask for: code in C opens "
        "the others, which cannot be followed"
    )
