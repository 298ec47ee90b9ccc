"""The progress line on standard error, redrawn only when the measuring says something: no refresh thread.

A thread would take processor time from the blocks, and hold locks while the DataLoader forks its workers.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING

from bottleneck.measure.progress import ProgressCallback, ProgressUpdate
from bottleneck.results.format import gain

if TYPE_CHECKING:
    from rich.progress import Progress


def open_progress() -> AbstractContextManager[ProgressCallback | None]:
    """A progress line where standard error is a terminal, else nothing."""
    if sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
        return nullcontext(None)
    return ProgressLine()


BAR = 16
LEAST_WIDTH = 40
"""Of a terminal that is asked for its width and says nothing of use."""


class ProgressLine(AbstractContextManager[ProgressCallback]):
    """A bar, per cent and seconds in fixed places, and behind them what is known so far; it never goes back."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._done = 0.0

    def __enter__(self) -> ProgressCallback:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            BarColumn(bar_width=BAR),
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
        self._done = max(self._done, done or 0.0)
        room = max(LEAST_WIDTH, self._progress.console.width) - BAR - 2
        self._progress.update(
            self._progress.task_ids[0],
            description=describe_update(update, self._done)[:room],
            total=None if done is None else 1.0,
            completed=self._done,
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


def describe_update(update: ProgressUpdate, done: float) -> str:
    """One line such as ` 62 %   at most 24 s   so far: augment, 2.4x without it`.

    Args:
        update: What is going on.
        done: The part that is done, of all that was told.
    """
    left = f"at most {max(0.0, update.budget_s - update.elapsed_s):.0f} s" if update.budget_s else ""
    return f"{100 * done:3.0f} %  {left:>13}  {_so_far(update)}".rstrip()


def _so_far(update: ProgressUpdate) -> str:
    """What is known of the job; before the first round, what is being done."""
    if update.state is None:
        return f"{update.phase}: {update.experiment}" if update.experiment else update.phase
    if update.state == "device_bound":
        return "so far: the train step holds it"
    if update.state == "undecided":
        return "so far: undecided"
    if update.bottleneck is None:
        return "so far: the input, no stage yet"
    return f"so far: {update.bottleneck}" + (f", {gain(update.gain)} without it" if update.gain else "")
