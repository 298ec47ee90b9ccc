"""The experiment `cold`: the job as it is, with the files of its samples dropped from the page cache beforehand.

All experiments that load then run over one pool of batches. It is read once, so that its files are known and in
memory: that is `raw`. Before each block of `cold` they are dropped, which is verified; the block asks for no batch
twice. What it left unread is read before anything else is measured that loads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from bottleneck.errors import BottleneckError
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.cold.page_cache import DataFile, Page, drop, find_resident, sample_pages
from bottleneck.measure.files import mount_of, read_mounts
from bottleneck.measure.ladder import Arm, Ladder, Rung, reads_storage
from bottleneck.results.evidence import Cold
from bottleneck.results.records import Stage

COLD = "cold"
STORAGE = "storage"

_BLOCK_BATCHES = 20
_MOST_RESIDENT = 0.05
"""The share of the pages that were in memory and may still be there after dropping."""
_FEWEST_PAGES = 8
"""With fewer pages in memory beforehand it cannot be verified that dropping works."""
_TRIES, _PAUSE_S = 15, 0.1
"""Pages that are in use cannot be dropped: on a busy machine that can last for a moment."""


class NoColdError(BottleneckError):
    """The experiment cannot be done; its text says why."""


@dataclass(frozen=True)
class PoolSizes:
    """Batches of a pool."""

    wanted: int
    """For blocks of the usual length."""
    least: int
    """For a block of one batch of each worker."""
    warm_up: int
    """Before a block."""


def pool_sizes(workers: int, queue: int) -> PoolSizes:
    """Return how many batches a pool needs: the warm-up, the block, and those that are asked for ahead."""
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
        seed: Of the pages that are probed.
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
            Whether they surely were in memory and are no more; False where too few were there to verify it.

        Raises:
            NoColdError: They are still in memory.
        """
        self._loader.rest()
        self._seed += 1
        before = find_resident(sample_pages(self._files, self._seed))
        after = self._drop_and_probe(before) if before is not None else None
        self._read_up_to = 0
        self._loader.restart_pool()
        if before is None or after is None:
            raise NoColdError(f"{self._where()} does not report what of a file is in memory")
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

    def _drop_and_probe(self, pages: list[Page]) -> list[Page] | None:
        """Return the pages that stayed in memory; None where that is unknown."""
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
        self._loader.switch_real()
        for _ in range(self._batches - begin):
            self._loader.next_batch()
        self._read_up_to = None

    def _where(self) -> str:
        mounts = read_mounts()
        kinds = {mount.kind for file in self._files[:100] if (mount := mount_of(file.path, mounts)) is not None}
        return f"the file system ({', '.join(sorted(kinds))})" if kinds else "the file system"

    def evidence(self) -> Cold:
        return Cold(
            verified=self.failure is None,
            files=len(self._files),
            bytes=sum(file.size_bytes for file in self._files),
            reason=self.failure,
            batches=self._batches,
            samples=self._samples,
            resident_share=self.resident_share,
        )


def with_cold(ladder: Ladder, reason: str | None) -> Ladder:
    """Return a ladder with the experiment `cold` on the far side of `raw`, or with the reason why it is not there."""
    raw = next(rung for rung in ladder.rungs if rung.name == "raw")
    rungs = tuple(rung for rung in ladder.rungs if rung.name != COLD)
    spans = tuple(span for span in ladder.spans if span.name != STORAGE)
    if reason is not None:
        return replace(ladder, rungs=(*rungs, Rung(COLD, reason)), spans=spans)
    # The workers alone say what storage costs; where they cannot be measured, the loader alone does.
    rung = Rung(COLD, None, _cold(raw.coupled), None if raw.workers else _cold(raw.drained), _cold(raw.workers))
    return replace(ladder, rungs=(*rungs, rung), spans=(*spans, Stage.between(STORAGE, "raw", COLD)))


def _cold(arm: Arm | None) -> Arm | None:
    return None if arm is None else replace(arm, cold=True)
