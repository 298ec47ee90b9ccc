"""The progress line on standard error, redrawn only when the measuring says something: no refresh thread.

A thread would take processor time from the blocks, and hold locks while the DataLoader forks its workers.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING

from bottleneck.measure.progress import ProgressCallback, ProgressUpdate

if TYPE_CHECKING:
    from rich.progress import Progress


def open_progress() -> AbstractContextManager[ProgressCallback | None]:
    """A progress line where standard error is a terminal, else nothing."""
    if sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
        return nullcontext(None)
    return ProgressLine()


class ProgressLine(AbstractContextManager[ProgressCallback]):
    """A bar of the elapsed part of the time, with what is being done beside it."""

    def __init__(self) -> None:
        self._progress: Progress | None = None

    def __enter__(self) -> ProgressCallback:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._progress.start()
        self._progress.add_task("starting", total=None)
        return self.show

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, update: ProgressUpdate) -> None:
        """Redraw the line."""
        if self._progress is None:
            return
        done = done_share(update)
        self._progress.update(
            self._progress.task_ids[0],
            description=describe_update(update),
            total=None if done is None else 1.0,
            completed=done or 0.0,
        )
        self._progress.refresh()


def done_share(update: ProgressUpdate) -> float | None:
    """Which part is done, from 0 to 1, in rounds or in time, whichever is further; None: unknown."""
    shares = []
    if update.round is not None and update.rounds:
        shares.append((update.round - 1) / update.rounds)
    if update.budget_s:
        shares.append(update.elapsed_s / update.budget_s)
    return min(1.0, max(shares)) if shares else None


def describe_update(update: ProgressUpdate) -> str:
    """One line such as 'round 3 of 6: raw (coupled), efficiency 38 % (36–40 %), at most 48 s left'."""
    text = update.phase
    if update.round is not None:
        of = f" of {update.rounds}" if update.rounds else ""
        text = f"round {update.round}{of}"
    if update.experiment:
        text += f": {update.experiment}"
    if update.efficiency is not None:
        e = update.efficiency
        text += f", efficiency {100 * e.estimate:.0f} % ({100 * e.low:.0f}–{100 * e.high:.0f} %)"
    if update.budget_s:
        text += f", at most {max(0.0, update.budget_s - update.elapsed_s):.0f} s left"
    return text
