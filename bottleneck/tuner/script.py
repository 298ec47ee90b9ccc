"""`bottleneck.tuning` and `bottleneck tune train.py`: tune the loader inside the loop of an unmodified script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bottleneck.job.pipeline import Pipeline
from bottleneck.job.target import parse_duration
from bottleneck.measure.options import MeasureOptions, ProgressCallback
from bottleneck.results.warnings.job import workers_for_each_batch
from bottleneck.script.leaving import Body, leaving
from bottleneck.script.measuring import Measuring
from bottleneck.script.pace import OwnPace
from bottleneck.tuner.change import Change
from bottleneck.tuner.changes import choose
from bottleneck.tuner.tune import BUDGET_S, Tuning, TuningAttempt, answer, attempt_tuning


class TuningLoop(Measuring[TuningAttempt]):
    """Watches the process while entered, and tunes the loader of its training loop once that is found.

    Args:
        changes: Changes that may be tried; those to the loop itself do not apply.
        budget_s: Total time.
        seconds: Time for the number of workers alone; None if all changes are tried.
        finish: As in `Measuring`, like the remaining arguments.
    """

    def __init__(
        self,
        changes: Sequence[Change],
        budget_s: float,
        finish: Callable[[Callable[[], TuningAttempt]], Any],
        progress: ProgressCallback | None = None,
        skip_steps: int | None = None,
        loader: str | None = None,
        seconds: float | None = None,
    ) -> None:
        super().__init__(MeasureOptions(), finish, progress, skip_steps, loader)
        self._changes = changes
        self._budget_s = budget_s
        self._seconds = seconds
        self._watch.own_pace = OwnPace() if seconds is None else None

    def _measure(self, pipeline: Pipeline, options: MeasureOptions) -> TuningAttempt:
        return attempt_tuning(pipeline, self._changes, self._budget_s, self._tell, options.loop, self._seconds)

    def _with_what_was_seen(self, outcome: TuningAttempt) -> TuningAttempt:
        warnings = [*self._saved.warnings(), *outcome.tuning.warnings, *self._warnings()]
        if self._watch.starts_workers_for_each_batch:
            warnings.insert(0, workers_for_each_batch())
        return replace(outcome, tuning=replace(outcome.tuning, warnings=tuple(warnings)))


class TuningRun(Body[TuningAttempt]):
    """Result of `tuning`: the tuning of the loop, available after the body."""

    @property
    def tuning(self) -> Tuning:
        """The tuning, incomplete if the training ended or raised first.

        Raises:
            MeasurementError: There is none (yet).
        """
        return self._ended().tuning


@contextmanager
def tuning(
    *,
    try_: Sequence[str | Change] | None = None,
    skip: Sequence[str] = (),
    budget: str | float = BUDGET_S,
    safe: bool = False,
    progress: ProgressCallback | None = None,
    loader: str | int | None = None,
    skip_steps: int | None = None,
) -> Iterator[TuningRun]:
    """Tune the loader of the training loop that runs in the body, as `bottleneck tune train.py` does in a script.

    The body is left when the tuning is done, from within the loop and without an error. Model, optimizer, random
    numbers, loader and process are then in their state of when measuring began, after some steps of training.

    Args:
        try_: As in `tune`, like all options up to `progress`; the others as in `diagnosing`.

    Raises:
        UsageError: A bad option, a diagnosis that is already running, or a loop that cannot be tuned.
        MeasurementError: The body ended before the tuning did, or the job failed. The error's `tuning` attribute has
            the results until then. Exceptions of the body itself are raised unchanged.
    """
    changes = choose(try_, skip, safe=safe)
    budget_s = parse_duration(budget)
    run = TuningRun()

    def begin(finish: Callable[[Callable[[], TuningAttempt]], Any], *where: Any) -> TuningLoop:
        return TuningLoop(changes, budget_s, finish, progress, *where)

    with leaving(begin, run, skip_steps, loader):
        yield run
    answer(run._ended())
