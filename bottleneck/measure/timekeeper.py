"""The time of one diagnosis: what has passed, what it may take, and what is reported of it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.progress import ProgressCallback, ProgressUpdate
from bottleneck.measure.rounds.schedule import longest_budget_s, total_budget_s


class Timekeeper:
    """Starts with the diagnosis."""

    def __init__(self, options: MeasureOptions, on_progress: ProgressCallback, clock: Callable[[], float]) -> None:
        self.clock, self._on_progress = clock, on_progress
        self.started_s = clock()
        self.budget_s = total_budget_s(options.budget_s, quick=options.quick)
        """What the whole diagnosis may take, before it is known how slow the job is."""
        self.longest_budget_s = longest_budget_s(options.budget_s, quick=options.quick)
        """The same of a slow job."""

    def elapsed_s(self) -> float:
        return self.clock() - self.started_s

    def tell(self, phase: str, **fields: Any) -> None:
        """Report progress, with fields of `ProgressUpdate`; never inside a block."""
        self._on_progress(ProgressUpdate(phase, **fields, elapsed_s=self.elapsed_s(), budget_s=self.budget_s))
