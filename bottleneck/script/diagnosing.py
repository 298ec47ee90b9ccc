"""Diagnose the job in a running script: `bottleneck run train.py` and `bottleneck.diagnosing`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bottleneck.api import Asked, Attempt, Diagnosis, attempt_diagnosis
from bottleneck.job.pipeline import Pipeline
from bottleneck.measure.options import MeasureOptions, ProgressCallback
from bottleneck.measure.rounds.schedule import total_budget_s
from bottleneck.results.evidence import LoopSeen
from bottleneck.script.leaving import Body, leaving
from bottleneck.script.measuring import Measuring
from bottleneck.script.seen import of_new_workers, of_one_loader

_MAX_WAIT_S, _WAIT_SHARE = 6.0, 0.15
"""Maximum wait for the first epochs to end, in seconds and as a share of the budget."""


class Diagnosing(Measuring[Attempt]):
    """A context that watches the process, and diagnoses its training loop once that is found.

    Unless the number of real steps is given, the measurement also waits for short epochs to end.
    """

    def __init__(
        self,
        options: MeasureOptions,
        finish: Callable[[Callable[[], Attempt]], Any],
        progress: ProgressCallback | None = None,
        skip_steps: int | None = None,
        loader: str | None = None,
    ) -> None:
        super().__init__(options, finish, progress, skip_steps, loader)
        if skip_steps is None:
            budget_s = total_budget_s(options.budget_s, quick=options.quick)
            self._watch.first_epochs.limit_s = min(_MAX_WAIT_S, _WAIT_SHARE * budget_s)

    def _measure(self, pipeline: Pipeline, options: MeasureOptions) -> Attempt:
        return attempt_diagnosis(pipeline, options, self._tell)

    def _with_what_was_seen(self, outcome: Attempt) -> Attempt:
        found = outcome.diagnosis
        # After the rounds the result contains it; the objects that kept it may have been restored since.
        seen = self._seen() if found.evidence.loop == LoopSeen() else found.evidence.loop
        verdict = of_one_loader(found.verdict, seen)
        changed = replace(
            found,
            verdict=of_new_workers(verdict) if self._watch.starts_workers_for_each_batch else verdict,
            evidence=replace(found.evidence, loop=seen),
            # Harmful effects come first: reports may have room for a few warnings only.
            warnings=(*self._saved.warnings(), *found.warnings, *self._warnings()),
        )
        return replace(outcome, diagnosis=changed)


class Run(Body[Attempt]):
    """The value of `diagnosing`, which holds the diagnosis of the loop after the block."""

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis, which is partial if the training ended or raised first.

        Raises:
            MeasurementError: Nothing has been measured, or not yet.
        """
        return self._ended().diagnosis


@contextmanager
def diagnosing(  # noqa: PLR0913 - the options of the contract
    *,
    budget: str | float | None = None,
    quick: bool = False,
    seed: int = 0,
    cache_bytes: int | None = None,
    flamegraph: str | os.PathLike[str] | None = None,
    gpu_hour_price: float | None = None,
    trace: str | os.PathLike[str] | None = None,
    cold: bool = False,
    progress: ProgressCallback | None = None,
    loader: str | int | None = None,
    skip_steps: int | None = None,
) -> Iterator[Run]:
    """Diagnose the training loop that runs in the body, as `bottleneck run` does for a script.

    After the verdict the body is left, from within the loop and without an error. Model, optimizer, random numbers,
    loader and process are then restored to their state after the first steps of real training.

    All arguments except the following two are those of `diagnose`.

    Args:
        loader: The DataLoader to diagnose if several feed the loop: its number, or the name of its dataset's class.
        skip_steps: Training steps before measuring begins. None: three, and up to six seconds more if the first
            epochs end in that time and others follow, so that the work between two epochs is seen.

    Raises:
        UsageError: An option is invalid, or a diagnosis is running already.
        MeasurementError: The body ended before the measurement did, or the job could not be measured. The measurements
            so far are its `diagnosis` attribute. Exceptions of the body itself are raised unchanged.
    """
    asked = Asked(
        budget=budget, quick=quick, seed=seed, cache_bytes=cache_bytes, flamegraph=flamegraph,
        gpu_hour_price=gpu_hour_price, trace=trace, cold=cold, progress=progress,
    )  # fmt: skip
    run = Run()

    def begin(finish: Callable[[Callable[[], Attempt]], Any], *where: Any) -> Diagnosing:
        return Diagnosing(asked.options, finish, asked.progress, *where)

    with leaving(begin, run, skip_steps, loader):
        yield run
    asked.answer(run._ended())
