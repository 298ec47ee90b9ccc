"""Diagnose the job that a running script is: find its training loop, and feed it with the experiments."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from bottleneck.api import Attempt, attempt_diagnosis
from bottleneck.errors import BottleneckError, MeasurementError
from bottleneck.job.description import Pipeline
from bottleneck.job.users_traceback import users_traceback
from bottleneck.measure.explain_errors import one_line
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.progress import ProgressCallback
from bottleneck.results.records import Warning
from bottleneck.script.feed import Feed
from bottleneck.script.watch import Source, Watch

_STEP = LRScheduler.step
_DESCRIBE_IT = "Describe the job in a function: bottleneck diagnose train.py:build."


class Diagnosing:
    """Watches the process while it is entered, and diagnoses its training loop once that is found.

    Args:
        options: Of the diagnosis.
        finish: Called in the place of the batch after the last one, with what gives the outcome or raises why there is
            none; it does not return.
        progress: Called between blocks.
        skip_steps: Steps of real training before the measuring.
        loader: Which loader, where several feed the loop; see `Watch`.
    """

    def __init__(
        self,
        options: MeasureOptions,
        finish: Callable[[Callable[[], Attempt]], Any],
        progress: ProgressCallback | None = None,
        skip_steps: int = 3,
        loader: str | None = None,
    ) -> None:
        self._options, self._finish, self._progress = options, finish, progress
        self._watch = Watch(self._begin, skip_steps, loader)
        self._loader = loader
        self._feed: Feed[Attempt | BottleneckError] | None = None
        self._in_the_loop: str | None = None

    def __enter__(self) -> Diagnosing:
        self._watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.__exit__()
        LRScheduler.step = _STEP  # type: ignore[method-assign]  # as it was

    def end(self, error: BaseException | None) -> Attempt:
        """The script has ended: return what was measured until then.

        Args:
            error: What it raised; None: it ran to its end.

        Raises:
            MeasurementError: Nothing was measured, with the reason.
        """
        if self._feed is None:
            raise self._not_found(error)
        if not self._feed.is_done:
            self._feed.end(_early_end(error))
        return _attempt(self._feed, self._warnings())

    def _not_found(self, error: BaseException | None) -> BaseException:
        if isinstance(error, KeyboardInterrupt):
            return error
        if error is not None and not isinstance(error, SystemExit):
            return _raised(error, "The script raised before it was measured")
        if not self._watch.saw_a_loader:
            return MeasurementError("The script made no pass over a DataLoader of PyTorch's.", _DESCRIBE_IT)
        if not self._watch.optimizer_steps:
            return MeasurementError("No optimizer of PyTorch's made a step.", _DESCRIBE_IT)
        if self._loader is not None and self._loader not in " ".join(self._watch.names):
            return MeasurementError(
                f"No training loader is called {self._loader!r}.", f"Its loaders are {', '.join(self._watch.names)}."
            )
        return MeasurementError(
            "The script ended before enough steps of the optimizer lay between the batches of one loader.",
            "Let it train for longer, or give a smaller --skip-steps.",
        )

    def _warnings(self) -> Iterator[Warning]:
        if self._in_the_loop is not None:
            yield Warning(
                "input-in-loop",
                f"The loop {self._in_the_loop}: what it does with them before it trains is part of compute. In the "
                "dataset or the collate function, it would be measured as input, and workers would do it.",
            )
        if self._watch.others:
            others = ", ".join(type(loader.dataset).__name__ for loader in self._watch.others)
            yield Warning(
                "several-loaders",
                f"The loop takes batches from other loaders as well ({others}), which went on as they are: what they "
                f"cost is in compute. --loader chooses another one: {', '.join(self._watch.names)}.",
            )

    # --- in the loop ---------------------------------------------------------------------------------------

    def _begin(self, source: Source, optimizer: Any) -> Callable[[], Any]:
        def diagnose(step: Callable[[Any], None]) -> Attempt | BottleneckError:
            device = _device_of(optimizer)
            moves = source.transfer if device is not None and device.type != "cpu" else None
            pipeline = Pipeline.from_loader(
                source.loader, train_step=step, optimizer=optimizer, device=device, to_device=moves
            )
            try:
                options = replace(self._options, loop=self._watch.loop)
                return attempt_diagnosis(pipeline, options, self._progress)
            except BottleneckError as error:
                return error

        feed = self._feed = Feed(diagnose)
        self._watch.is_measuring = lambda: feed.runs_here
        self._in_the_loop = source.in_the_loop
        LRScheduler.step = _without_an_end(LRScheduler.step)  # type: ignore[method-assign]  # until the end

        def next_batch() -> Any:
            batch = feed.next_batch()
            if feed.is_done:
                self._finish(lambda: _attempt(feed, self._warnings()))
                raise StopIteration
            return batch

        return next_batch


def _without_an_end(step: Callable[..., None]) -> Callable[..., None]:
    """Let a learning rate that was planned for so many steps stay where it is after them: we make the loop longer."""

    @functools.wraps(step)
    def tolerant(scheduler: Any, *args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(ValueError):
            step(scheduler, *args, **kwargs)

    return tolerant


def _attempt(feed: Feed[Attempt | BottleneckError], warnings: Iterable[Warning]) -> Attempt:
    if isinstance(feed.outcome, BottleneckError):
        raise feed.outcome
    assert feed.outcome is not None
    found = feed.outcome.diagnosis
    changed = replace(found, pipeline={**found.pipeline, "source": "script"}, warnings=(*found.warnings, *warnings))
    return replace(feed.outcome, diagnosis=changed)


def _early_end(error: BaseException | None) -> BaseException:
    if isinstance(error, KeyboardInterrupt):
        return error
    if error is None or isinstance(error, SystemExit):
        return MeasurementError(
            "The script ended before the measuring did.", "Let it train for longer, or give a smaller --budget."
        )
    return _raised(error, "The script raised while it was measured")


def _raised(error: BaseException, what: str) -> MeasurementError:
    return MeasurementError(
        f"{what}: {one_line(error)}", "It would by itself, too; mend that first.", users_traceback(error)
    )


def _device_of(optimizer: Any) -> torch.device | None:
    """Where the parameters are that an optimizer steps."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            device: torch.device = parameter.device
            return device
    return None
