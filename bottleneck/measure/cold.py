"""The experiment `cold`: the original job, with the files of its samples dropped from the page cache beforehand.

All experiments that load then run over one pool of batches. It is read once, so that its files are known and in
memory: that is `raw`. Before each block of `cold` they are dropped; the block asks for no batch twice. The rest of the
pool is read before any other experiment that loads.

Dropping is advice to the kernel (`posix_fadvise`) and needs no root: pages that are dirty, or mapped into the memory of
any process, stay. So pages are probed afterwards: a read that must not wait (`preadv` with RWF_NOWAIT) fails for a page
that is not in memory.
"""

from __future__ import annotations

import contextlib
import os
import random
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from bottleneck.errors import BottleneckError
from bottleneck.loader import modes
from bottleneck.loader.engine import NotedFiles
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.evidence.io import IoCounters, StorageReads, is_data, mapped_data, open_data, read_counters
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.ladder import Arm, Ladder, Preparation, Rung, reads_storage
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.machine.environment import free_memory_bytes
from bottleneck.measure.preparer import Preparer
from bottleneck.results.evidence import Cold
from bottleneck.results.names import COLD
from bottleneck.results.records import Stage

_DROPPED: Preparation = "files dropped"
_BUDGET_SHARE = 0.08
"""Share of the budget for reading a pool."""
_MAX_TIMES_OVER = 3
"""Factor by which reading the smallest pool may exceed that."""
_BLOCK_BATCHES = 20
_MEMORY_SHARE = 0.5
"""Share of the free memory that the pool's files may take; more might not stay there."""
_EXPLAINED = 0.5
"""Share of the requested bytes that must be explained, by the files found or by reads from storage."""
_MIN_BYTES_PER_SAMPLE = 1024
_MAX_RESIDENT = 0.05
"""Share of the pages in memory that may still be there after dropping."""
_PAGES = 64
"""Number of pages that are probed."""
_PAGE_BYTES = 4096
_MIN_PAGES = 8
"""Pages in memory beforehand without which dropping cannot be verified."""
_TRIES = 15
"""Attempts to drop pages: those in use cannot be dropped, for a moment, on a busy machine."""
_PAUSE_S = 0.1

Files = dict[str, int]
"""Size of each file by its path [bytes]."""


class NoColdError(BottleneckError):
    """The reason why the experiment is impossible."""


class ColdFiles(Preparer):
    """The experiment `cold` in one diagnosis; without a pool it does nothing.

    Args:
        loader: The running loader, made to note files.
        ledger: Gets the evidence.
        clock: Monotonic seconds.
        seed: Seed for the pages to probe.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        loader: SwitchedLoader,
        ledger: Ledger,
        clock: Callable[[], float],
        seed: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._loader = loader
        self._ledger = ledger
        self._clock = clock
        self._sleep = sleep
        self._random = random.Random(seed)
        self.files: Files = {}
        self._batches = 0
        """Batches in the pool."""
        self._samples = 0
        self._read_up_to: int | None = None
        """Batches of the pool read since the files were dropped; None for all."""
        self.failure: str | None = None
        """Reason why measurements with cold files do not count; None if they do."""
        self._resident_share: float | None = None

    # --- the pool ------------------------------------------------------------------------------------------

    def make_pool(self, budget_s: float) -> None:
        """Choose a pool of batches, find the files that they are read from, and check that those can be dropped.

        The loader rests afterwards, with the pool in memory. If it is impossible, the reason is kept.

        Raises:
            MeasurementError: The user's code or a worker failed.
        """
        try:
            with loader_failures("raw"):
                self._make_pool(_BUDGET_SHARE * budget_s)
        except NoColdError as error:
            self._loader.order.pool = None  # raw must not ask for a sample twice
            self.failure = str(error)
            self.files = {}
            self._read_up_to = None

    def _make_pool(self, limit_s: float) -> None:
        if not self._loader.num_workers:
            raise NoColdError("num_workers is 0, and files can be followed in workers only: set num_workers=1")
        if self._loader.iterable:
            raise NoColdError("the dataset is a stream, which cannot be asked for the same samples again")
        if not all(hasattr(os, name) for name in ("posix_fadvise", "preadv", "RWF_NOWAIT")):
            raise NoColdError("this system cannot drop single files from memory")
        workers = self._loader.workers
        begun = read_counters(workers)
        self._batches, self._samples = self._read_pool(limit_s)
        noted, ended = self._loader.files(), read_counters(workers)
        if begun is None or ended is None:
            raise NoColdError("the system does not report the workers' reads")
        asked = (ended - begun).requested
        self.files = find_files(noted, workers)
        if not self.files:
            raise NoColdError("the dataset opens no file that could be followed")
        if min(asked, sum(self.files.values())) > _MEMORY_SHARE * free_memory_bytes():
            raise NoColdError("the files of a few batches do not fit into the free memory")
        dropped = self.drop()
        begun = read_counters(workers)
        self.restore()
        self._loader.rest()
        ended = read_counters(workers)
        if begun is not None and ended is not None:
            opens = sum(found.opens for found in noted)
            check_reads(ended - begun, asked, self._samples, self.files, opens, dropped=dropped)

    def _read_pool(self, limit_s: float) -> tuple[int, int]:
        """Let the workers read a pool and note its files; return its batches and their samples."""
        loader, workers = self._loader, self._loader.num_workers
        wanted, least = pool_sizes(workers, loader.queue_length)
        there = loader.order.fill_pool(wanted)
        if there < least:
            raise NoColdError(f"the dataset has {there} batches, but {least} different ones are needed")
        loader.switch_real(modes.NOTE_FILES)
        started, taken, samples = self._clock(), 0, 0
        while taken < there and not (self._clock() - started > limit_s and taken >= least):
            samples += loader.next_batch()[1]
            taken += 1
            if self._clock() - started > _MAX_TIMES_OVER * limit_s and taken < least:
                raise NoColdError(
                    f"reading the required {least} batches takes too long for the budget; use a larger one"
                )
        loader.rest()
        # A worker reports the files it noted when it begins a batch in another mode.
        for _ in range(4 * workers):
            if len(loader.files()) >= workers:
                break
            loader.next_batch()
        del (loader.order.pool or [])[max(1, taken) :]
        return taken, samples

    # --- around blocks -------------------------------------------------------------------------------------

    def prepare_for(self, arm: Arm) -> None:
        """Drop the files before a block with cold files, and read them before one with warm files."""
        if arm.preparation == _DROPPED:
            try:
                self.drop()
            except NoColdError as error:
                self.failure = self.failure or str(error)
        elif reads_storage(arm):
            self.restore()

    def limit(self, batches: int) -> int:
        """Return the number of batches that a block may have, of those wanted, so that none is read twice."""
        unit = max(1, self._loader.num_workers)
        left = self._batches - self._loader.order.pool_position
        return max(unit, min(batches, unit * (left // unit)))

    def end_block(self) -> None:
        """Note how far a block with cold files came."""
        self._read_up_to = self._loader.pool_received

    def restore(self) -> None:
        """Read the batches that have not been read since the files were dropped."""
        if self._read_up_to is None:
            return
        begin = self._read_up_to
        self._loader.rest()
        self._loader.restart_pool(begin)
        self._loader.switch_real()
        for _ in range(self._batches - begin):
            self._loader.next_batch()
        self._read_up_to = None

    def left_of(self, ladder: Ladder) -> Ladder:
        """Return the ladder without the experiment if the files turned out to be warm."""
        return ladder if self.failure is None else with_cold(ladder, self.failure)

    def drop(self) -> bool:
        """Drop the files, leaving the loader at rest at the beginning of the pool.

        Returns:
            True if the files were verified to have left memory; False if too few pages were there to verify it.

        Raises:
            NoColdError: The files are still in memory.
        """
        self._loader.rest()
        before = find_resident(sample_pages(self.files, self._random))
        after = self._drop_and_probe(before) if before is not None else None
        self._read_up_to = 0
        self._loader.restart_pool()
        if before is None or after is None:
            raise NoColdError("the file system does not report which pages are in memory")
        if len(before) < _MIN_PAGES:
            return False
        share = len(after) / len(before)
        self._resident_share = max(share, self._resident_share or 0.0)
        if share > _MAX_RESIDENT:
            raise NoColdError(
                f"{100 * share:.0f} % of the files' pages stayed in memory: the file system is in memory, a process "
                "has them mapped, or they have just been written (call `sync` and try again)"
            )
        return True

    def _drop_and_probe(self, pages: list[tuple[str, int]]) -> list[tuple[str, int]] | None:
        """Return the pages that stayed in memory; None if unknown."""
        for _ in range(_TRIES):
            drop_files(self.files)
            found = find_resident(pages)
            if found is None or len(found) <= _MAX_RESIDENT * len(pages):
                break
            self._sleep(_PAUSE_S)
        return found

    # --- result --------------------------------------------------------------------------------------------

    def note(self, reads: StorageReads | None) -> None:
        """Keep the evidence; drop the measurements if the other experiments were cold as well."""
        ledger = self._ledger
        if self.failure is None:
            if not self.files:  # the diagnosis ended before
                return
            if reads is not None and reads.source(Ladder.raw) == "disk":
                self.failure = "raw, too, read from the disk: the files of a few batches do not stay in memory"
                ledger.ladder = with_cold(ledger.ladder, self.failure)
        found = Cold(verified=self.failure is None, reason=self.failure)
        if self.files:
            found = replace(
                found,
                files=len(self.files),
                bytes=sum(self.files.values()),
                batches=self._batches,
                samples=self._samples,
                resident_share=self._resident_share,
            )
        ledger.evidence = replace(ledger.evidence, cold=found)


def with_cold(ladder: Ladder, reason: str | None) -> Ladder:
    """Return a ladder with the experiment `cold` after `raw`, or with the reason why it is missing."""
    raw = next(rung for rung in ladder.rungs if rung.name == "raw")
    rungs = tuple(rung for rung in ladder.rungs if rung.name != COLD)
    spans = tuple(span for span in ladder.spans if span.outer != COLD)
    if reason is not None:
        return replace(ladder, rungs=(*rungs, Rung(COLD, reason)), spans=spans)
    # The workers alone show the cost of storage; the loader alone does if they cannot be measured.
    coupled, drained, workers = (
        None if arm is None else replace(arm, preparation=_DROPPED)
        for arm in (raw.coupled, None if raw.workers else raw.drained, raw.workers)
    )
    cold = Rung(COLD, None, coupled, drained, workers)
    return replace(ladder, rungs=(*rungs, cold), spans=(*spans, Stage.between("storage", "raw", COLD)))


def pool_sizes(workers: int, queue: int) -> tuple[int, int]:
    """Return the numbers of batches that a pool should have for blocks of the usual length, and must have at least.

    They cover warm-up, block, and batches requested ahead.
    """
    warm_up, block = max(2, workers), workers * -(-_BLOCK_BATCHES // workers)
    return warm_up + block + 2 * queue, warm_up + workers + queue


# --- files and pages ---------------------------------------------------------------------------------------


def find_files(noted: Iterable[NotedFiles], workers: Sequence[int]) -> Files:
    """Return the existing, non-empty files that the workers opened, or keep open or mapped."""
    opened = (path for files in noted for path in files.opened if is_data(path))
    found: Files = {}
    for path in (*opened, *open_data(workers), *mapped_data(workers)):
        with contextlib.suppress(OSError):
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode) and status.st_size > 0:
                found[path] = status.st_size
    return found


def check_reads(read: IoCounters, asked: int, samples: int, files: Files, opens: int, *, dropped: bool) -> None:
    """Check whether reading the pool with its files dropped read them from storage.

    Args:
        read: Reads of the workers during it.
        asked: Bytes that they requested the first time.
        samples: Samples in the pool.
        files: The dropped files.
        opens: Number of times that the workers opened any file.
        dropped: True if the files were verified to have left memory.

    Raises:
        NoColdError: They were not read from storage, or it is unclear.
    """
    if asked > _MIN_BYTES_PER_SAMPLE * samples > 0 and read.requested < (1 - _EXPLAINED) * asked:
        raise NoColdError("the dataset caches in its own memory, so that it reads nothing twice")
    from_storage = read.storage >= _EXPLAINED * max(read.requested, _MIN_BYTES_PER_SAMPLE * samples)
    known_bytes = sum(files.values()) * max(1.0, opens / len(files))
    if from_storage or (dropped and known_bytes >= _EXPLAINED * asked):
        return
    if not dropped:
        raise NoColdError("little of its files was in memory, so it cannot be verified that dropping them works")
    raise NoColdError(
        "the files that were found explain less than half of the bytes that the workers request: code in C opens "
        "other files, which cannot be followed"
    )


def drop_files(paths: Iterable[str]) -> None:
    """Ask the kernel to drop files from memory; files that cannot be opened are skipped."""
    for path in paths:
        with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sample_pages(files: Files, draw: random.Random) -> list[tuple[str, int]]:
    """Choose random pages as (path, offset), uniformly over the bytes of the files."""
    chosen = draw.choices(list(files), weights=list(files.values()), k=_PAGES)
    return [(path, _PAGE_BYTES * (draw.randrange(files[path]) // _PAGE_BYTES)) for path in chosen]


def find_resident(pages: Iterable[tuple[str, int]]) -> list[tuple[str, int]] | None:
    """Return those of some pages that are in memory; None if the file system does not report it.

    Probing an absent page loads it. The file is dropped again at once, so that neighbouring pages do not count.
    """
    found = []
    for path, offset in pages:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # without read-ahead
            try:
                if os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT) == 1:
                    found.append((path, offset))
            except BlockingIOError:
                # The page is loading now, and cannot be dropped meanwhile.
                os.pread(descriptor, 1, offset)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            return None
        finally:
            os.close(descriptor)
    return found
