"""The experiment `cold`: the job as it is, with the files of its samples dropped from the page cache beforehand.

All experiments that load then run over one pool of batches. It is read once, so that its files are known and in
memory: that is `raw`. Before each block of `cold` they are dropped, and it is looked at whether they are gone; the
block asks for no batch twice. What it left unread is read before anything else is measured that loads.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bottleneck.errors import BottleneckError
from bottleneck.measure.arms import Arm, Ladder, Rung
from bottleneck.measure.blocks import reads_storage
from bottleneck.measure.data_paths import is_data, mapped_data, open_data
from bottleneck.measure.failure import loader_failures
from bottleneck.measure.file_systems import mount_of, read_mounts
from bottleneck.measure.page_cache import DataFile, Page, can_drop, drop, find_resident, sample_pages
from bottleneck.measure.reads import IoCounters, read_counters
from bottleneck.results.records import StageSpan
from bottleneck.staging import stages
from bottleneck.staging.file_watch import NotedFiles
from bottleneck.staging.loader import SwitchedLoader

COLD = "cold"
STORAGE = "storage"

BUDGET_SHARE = 0.08
"""The share of the budget after which a pool is read no further."""
_MOST_TIMES_OVER = 3
"""How far reading the smallest pool may exceed that."""
_BLOCK_BATCHES = 20
_MEMORY_SHARE = 0.5
"""The share of the free memory that the pool's files may take; more might not stay there."""
_MOST_RESIDENT = 0.05
"""The share of the pages that were in memory and may still be there after dropping."""
_FEWEST_PAGES = 8
"""Of fewer pages in memory beforehand it cannot be told whether dropping works."""
_TRIES, _PAUSE_S = 15, 0.1
"""Pages that somebody has just hold of cannot be dropped: on a busy machine that can last for a moment."""
_EXPLAINED = 0.5
"""The share of the bytes asked for that has to be explained: by the files found, or by reads from storage."""
_MOST_IN_MEMORY = 0.5
"""The share of the files' bytes that may lie on a file system in memory."""
_LEAST_BYTES_PER_SAMPLE = 1024


class NoColdError(BottleneckError):
    """The experiment cannot be done; its text says why, for people."""


@dataclass(frozen=True)
class PoolSizes:
    """Batches of a pool.

    Attributes:
        wanted: For blocks of the usual length.
        least: For a block of one batch of each worker.
        warm_up: Batches before a block.
    """

    wanted: int
    least: int
    warm_up: int


def pool_sizes(workers: int, queue: int) -> PoolSizes:
    """Return how many batches a pool needs: what is run before a block, the block, and what is asked for ahead.

    Args:
        workers: Workers of the loader.
        queue: Batches that are asked for ahead.
    """
    warm_up = max(2, workers)
    block = workers * -(-_BLOCK_BATCHES // workers)
    return PoolSizes(warm_up + block + 2 * queue, warm_up + workers + queue, warm_up)


class ColdPool:
    """Makes the files of a pool of batches cold or warm.

    Args:
        loader: The running loader, which has its pool.
        files: The files that the pool's samples are read from.
        batches: Length of the pool.
        samples: Samples in it.
        seed: Of the pages that are looked at.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self,
        loader: SwitchedLoader,
        files: tuple[DataFile, ...],
        batches: int,
        samples: int,
        seed: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._loader, self._files, self._seed = loader, files, seed
        self._batches, self._samples = batches, samples
        self._sleep = sleep
        self._read_up_to: int | None = None
        """Batches of the pool that were read since the files were dropped; None: all."""
        self.failure: str | None = None
        """Why nothing that was measured with cold files counts; None while it does."""
        self.resident_share: float | None = None
        """The largest share of pages that stayed in memory."""

    # --- around blocks -------------------------------------------------------------------------------------

    def prepare_for(self, arm: Arm) -> None:
        """Drop the files for a block that is to find them cold, and read them for one that is to find them warm."""
        if arm.cold:
            try:
                self.drop()
            except NoColdError as error:
                self.failure = self.failure or str(error)
        elif reads_storage(arm):
            self.warm()

    def limit(self, batches: int) -> int:
        """Return how many batches a block may have, of those wanted, so that none is asked for twice."""
        unit = max(1, self._loader.num_workers)
        left = self._batches - self._loader.pool_position
        return max(unit, min(batches, unit * (left // unit)))

    def spare(self) -> int:
        """Return how many batches may be run before a block of the usual length."""
        usual = pool_sizes(self._loader.num_workers, 0)
        return max(0, self._batches - self._loader.pool_position - (usual.wanted - usual.warm_up))

    def end_block(self) -> None:
        """Note how far a block with cold files got."""
        self._read_up_to = self._loader.pool_received

    # --- files ---------------------------------------------------------------------------------------------

    def drop(self) -> bool:
        """Drop the files, with the loader at rest and back at the pool's beginning.

        Returns:
            Whether it was seen that they were in memory and are no more; False where too few were in memory to tell.

        Raises:
            NoColdError: They are still in memory.
        """
        self._loader.rest()
        self._seed += 1
        before = find_resident(sample_pages(self._files, self._seed))
        after = self._drop_and_look(before) if before is not None else None
        self._read_up_to = 0
        self._loader.restart_pool()
        if before is None or after is None:
            raise NoColdError(f"{self._where()} does not tell what of a file is in memory")
        if len(before) < _FEWEST_PAGES:
            return False
        share = len(after) / len(before)
        self.resident_share = max(share, self.resident_share or 0.0)
        if share > _MOST_RESIDENT:
            raise NoColdError(
                f"{100 * share:.0f} % of the files' pages stayed in memory: {self._where()} keeps them there, a "
                "process has them mapped, or they have just been written (call `sync` and try again)"
            )
        return True

    def _drop_and_look(self, pages: list[Page]) -> list[Page] | None:
        """Return the pages that stayed in memory; None where that is not told."""
        for _ in range(_TRIES):
            drop(self._files)
            found = find_resident(pages)
            if found is None or len(found) <= _MOST_RESIDENT * len(pages):
                break
            self._sleep(_PAUSE_S)
        return found

    def warm(self) -> None:
        """Read what has not been read since the files were dropped."""
        if self._read_up_to is None:
            return
        begin = self._read_up_to
        self._loader.rest()
        self._loader.restart_pool(begin)
        mode = stages.ALL & ~stages.HANDOFF if self._loader.passes_tokens else stages.ALL
        self._loader.switch(mode)
        for _ in range(self._batches - begin):
            self._loader.next_batch()
        self._read_up_to = None

    def _where(self) -> str:
        mounts = read_mounts()
        kinds = {mount.kind for file in self._files[:100] if (mount := mount_of(file.path, mounts)) is not None}
        return f"the file system ({', '.join(sorted(kinds))})" if kinds else "the file system"

    def evidence(self) -> dict[str, Any]:
        """Return what is kept of it."""
        return {
            "verified": self.failure is None,
            "files": len(self._files),
            "bytes": sum(file.size_bytes for file in self._files),
            "reason": self.failure,
            "batches": self._batches,
            "samples": self._samples,
            "resident_share": self.resident_share,
        }


def no_evidence(reason: str) -> dict[str, Any]:
    """Return the evidence of an experiment that cannot be done."""
    return {"verified": False, "files": None, "bytes": None, "reason": reason}


# --- before the rounds ------------------------------------------------------------------------------------


def make_cold_pool(
    loader: SwitchedLoader, clock: Callable[[], float], *, limit_s: float, free_bytes: int, seed: int
) -> ColdPool:
    """Choose a pool of batches, find the files that they are read from, and see whether those can be dropped.

    Args:
        loader: The running loader; it was made to note files. It rests afterwards, with the pool in memory.
        clock: Seconds from any beginning.
        limit_s: Time after which the pool is read no further.
        free_bytes: Memory that is free.
        seed: Of the pages that are looked at.

    Raises:
        NoColdError: It cannot be done, or not be verified.
        MeasurementError: The user's code failed, or a worker.
    """
    if not loader.num_workers:
        raise NoColdError("num_workers is 0, and which files are opened is seen in workers only: --set num_workers=1")
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
        seen = pool.drop()
        before = read_counters(loader.workers)
        pool.warm()
        loader.rest()
        after = read_counters(loader.workers)
    if before is None or after is None:
        raise NoColdError("this system does not tell what the workers read")
    _check_reads(after - before, asked, samples, files, noted, seen=seen)
    return pool


def _read_pool(loader: SwitchedLoader, clock: Callable[[], float], limit_s: float) -> tuple[int, int]:
    """Let the workers read a pool and note its files; return its batches, and the samples in them."""
    sizes = pool_sizes(loader.num_workers, loader.queue_length)
    there = loader.fill_pool(sizes.wanted)
    if there < sizes.least:
        raise NoColdError(f"the dataset has {there} batches, and {sizes.least} are needed that do not repeat")
    mode = stages.ALL | stages.NOTE_FILES
    loader.switch(mode & ~stages.HANDOFF if loader.passes_tokens else mode)
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
        raise NoColdError("this system does not tell what the workers read")
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
    seen: bool,
) -> None:
    """See whether reading the pool with its files dropped read them from storage.

    Args:
        read: What the workers read then.
        asked: What they had asked for the first time.
        samples: Samples in the pool.
        files: The files that were dropped.
        noted: What the workers opened.
        seen: It was seen that the files were in memory and are no more.

    Raises:
        NoColdError: They did not, or not surely.
    """
    if asked > _LEAST_BYTES_PER_SAMPLE * samples > 0 and read.requested < (1 - _EXPLAINED) * asked:
        raise NoColdError("the dataset keeps in its own memory what it has read, so that it reads nothing twice")
    from_storage = read.storage >= _EXPLAINED * max(read.requested, _LEAST_BYTES_PER_SAMPLE * samples)
    opens = sum(found.opens for found in noted)
    known_bytes = sum(file.size_bytes for file in files) * max(1.0, opens / len(files))
    if from_storage or (seen and known_bytes >= _EXPLAINED * asked):
        return
    if not seen:
        raise NoColdError("little of its files was in memory, so that it cannot be told whether dropping them works")
    raise NoColdError(
        "the files that were found explain less than half of the bytes that the workers ask for: code in C opens "
        "the others, which cannot be followed"
    )


# --- the ladder -------------------------------------------------------------------------------------------


def with_cold(ladder: Ladder, reason: str | None) -> Ladder:
    """Return a ladder with the experiment `cold` on the far side of `raw`, or with the reason why it is not there."""
    raw = next(rung for rung in ladder.rungs if rung.name == "raw")
    rungs = tuple(rung for rung in ladder.rungs if rung.name != COLD)
    spans = tuple(span for span in ladder.spans if span.name != STORAGE)
    if reason is not None:
        return replace(ladder, rungs=(*rungs, Rung(COLD, reason)), spans=spans)
    # The workers alone say what storage costs; where they cannot be measured, the loader alone does.
    rung = Rung(COLD, None, _cold(raw.coupled), None if raw.workers else _cold(raw.drained), _cold(raw.workers))
    return replace(ladder, rungs=(*rungs, rung), spans=(*spans, StageSpan(STORAGE, "raw", COLD)))


def _cold(arm: Arm | None) -> Arm | None:
    return None if arm is None else replace(arm, cold=True)
