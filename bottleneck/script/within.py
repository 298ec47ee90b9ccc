"""`with bottleneck.diagnosing() as run:`, for a notebook, or for code that calls its own training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from bottleneck.api import Asked, Attempt, Diagnosis
from bottleneck.errors import BottleneckError, MeasurementError, UsageError
from bottleneck.measure.progress import ProgressCallback
from bottleneck.script.diagnosing import Diagnosing


class Run:
    """What `diagnosing` gives: the diagnosis of the loop, once its body has been left."""

    _diagnosis: Diagnosis | None = None

    @property
    def diagnosis(self) -> Diagnosis:
        """What was measured, be it only a part where the training ended or raised first.

        Raises:
            MeasurementError: Nothing was, or not yet.
        """
        if self._diagnosis is None:
            raise MeasurementError("Nothing has been measured.", "Look at it after the with block.")
        return self._diagnosis


class _Measured(BaseException):
    """Leaves the body when the measuring is done: batches from caches are no training."""


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
    skip_steps: int = 3,
) -> Iterator[Run]:
    """Diagnose the training loop that runs in the body, as `bottleneck run` does with that of a script.

    After the verdict the body is left, from within the loop and without an error. Model, optimizer, random numbers,
    loader and process are then as they were when the measuring began, after `skip_steps` steps of training.

    Args:
        budget: As in `diagnose`, like all options that follow up to `progress`.
        quick: Aim at 20 seconds and wider intervals.
        seed: Of the order of experiments and of the job's random numbers meanwhile.
        cache_bytes: Memory that all caches together may take.
        flamegraph: A folder for flamegraphs of the workers' code.
        gpu_hour_price: What a GPU hour costs, in any currency.
        trace: A folder for traces of a few steps.
        cold: Measure also what the job gets of files that are not in memory.
        progress: Called between blocks.
        loader: Which DataLoader, where several feed the loop: its number, or the name of its dataset's class.
        skip_steps: Steps of training before the measuring.

    Raises:
        UsageError: A bad option, or a diagnosis that runs already.
        MeasurementError: The body ended before the measuring did, or the job could not be measured. What was measured
            until then is its `diagnosis` attribute. What the body itself raises is raised as it is.
    """
    asked = Asked.of(
        budget=budget, quick=quick, seed=seed, cache_bytes=cache_bytes, flamegraph=flamegraph,
        gpu_hour_price=gpu_hour_price, trace=trace, cold=cold, progress=progress,
    )  # fmt: skip
    if isinstance(skip_steps, bool) or not isinstance(skip_steps, int) or skip_steps < 1:
        raise UsageError(f"skip_steps must be a whole number, 1 or more, not {skip_steps!r}.")
    outcomes: list[Callable[[], Attempt]] = []

    def finish(outcome: Callable[[], Attempt]) -> NoReturn:
        outcomes.append(outcome)
        raise _Measured

    run = Run()
    wanted = None if loader is None else str(loader)
    with Diagnosing(asked.options, finish, asked.progress, skip_steps, wanted) as inside:
        try:
            yield run
        except BaseException as error:
            if not outcomes:
                with suppress(BottleneckError, KeyboardInterrupt):
                    run._diagnosis = inside.end(error).diagnosis
                raise
        attempt = outcomes[0]() if outcomes else inside.end(None)
    run._diagnosis = attempt.diagnosis
    run._diagnosis = asked.answer(attempt)
