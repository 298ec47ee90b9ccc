"""The experiment `cold` in one diagnosis, from the choice of its samples to the evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.cold.choose import BUDGET_SHARE, make_cold_pool
from bottleneck.measure.cold.pool import ColdPool, NoColdError, with_cold
from bottleneck.measure.environment import free_memory_bytes
from bottleneck.measure.evidence.io import StorageReads
from bottleneck.measure.explain_errors import loader_failures
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.results.evidence import Cold


class ColdSession:
    """Cold files in one diagnosis; without a pool it does nothing."""

    def __init__(self, loader: SwitchedLoader, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._loader, self._ledger, self._clock = loader, ledger, clock
        self.pool: ColdPool | None = None
        self._reason: str | None = None

    def make_pool(self, budget_s: float, seed: int) -> None:
        """Choose the samples whose files are dropped, within a share of a budget, or note why that cannot be done."""
        limit_s, free_bytes = BUDGET_SHARE * budget_s, free_memory_bytes()
        try:
            self.pool = make_cold_pool(self._loader, self._clock, limit_s=limit_s, free_bytes=free_bytes, seed=seed)
        except NoColdError as error:
            self._loader.order.pool = None  # raw is to ask for no sample twice
            self._note(Cold(verified=False, reason=str(error)))
            self._reason = str(error)

    def extend(self, ladder: Ladder) -> Ladder:
        """Return the ladder with the experiment `cold`, or with the reason why there is none."""
        return with_cold(ladder, self._reason)

    def warm(self) -> None:
        """Read what a last block with cold files left unread: the passes that follow are of the job as it is."""
        if self.pool is not None:
            with loader_failures("raw"):
                self.pool.warm()

    def note(self, reads: StorageReads | None) -> None:
        """Keep the evidence; what was measured is dropped where the other experiments were cold as well."""
        pool, ladder = self.pool, self._ledger.ladder
        if pool is None:
            return
        if pool.failure is None and ladder is not None and reads is not None and reads.source(ladder.raw) == "disk":
            pool.failure = "raw, too, read from the disk: the files of a few batches do not stay in memory"
            self._ledger.ladder = with_cold(ladder, pool.failure)
        self._note(pool.evidence())

    def _note(self, found: Cold) -> None:
        self._ledger.evidence = replace(self._ledger.evidence, cold=found)
