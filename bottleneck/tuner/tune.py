"""`bottleneck.tune`: apply the fixes one after the other and measure them, by one call from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bottleneck.api import Reported, as_pipeline, attempt_diagnosis
from bottleneck.errors import PipelineError, UsageError
from bottleneck.job.checks import check
from bottleneck.job.loader_args import build_loader, read_loader_arguments
from bottleneck.job.loader_classes import can_skip_batches, only_keeps_workers
from bottleneck.job.pipeline import FIELD_NAMES
from bottleneck.job.step import device_of
from bottleneck.job.target import parse_duration
from bottleneck.measure.entry import what_ended_it
from bottleneck.measure.keep.preserved import left_as_it_was
from bottleneck.measure.ledger import describe_pipeline
from bottleneck.measure.machine.environment import describe_environment
from bottleneck.measure.options import Loop, MeasureOptions, ProgressCallback
from bottleneck.measure.ranks.group import find_group
from bottleneck.measure.ranks.watch import watching
from bottleneck.results.tuning import TuningResult
from bottleneck.script.iterators import Stream
from bottleneck.tuner.change import Change
from bottleneck.tuner.changes import choose
from bottleneck.tuner.changes.samples import prepare
from bottleneck.tuner.lane import LoopEnded, open_lane
from bottleneck.tuner.quick import WorkerTuning
from bottleneck.tuner.ranks import Ranks
from bottleneck.tuner.record import conclude
from bottleneck.tuner.session import TuningSession

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from bottleneck.job.pipeline import Pipeline
    from bottleneck.results.records import Result

BUDGET_S = 300.0


@dataclass(frozen=True, repr=False)
class Tuning(Reported, TuningResult):
    """A complete tuning. Immutable; `print` shows the report of the terminal."""

    def __repr__(self) -> str:
        return f"<Tuning of {self.created}: {self.sentence}>"


@dataclass(frozen=True)
class TuningAttempt:
    """A tuning that may have ended early."""

    tuning: Tuning
    """Results, be they incomplete."""
    failure: BaseException | None
    """Cause of an early end: a BottleneckError or a KeyboardInterrupt; None if complete."""
    leads: bool = True
    """True if this process reports the tuning: with several ranks, rank 0."""


def tune(
    pipeline: Pipeline | Mapping[str, Any],
    *,
    try_: Sequence[str | Change] | None = None,
    skip: Sequence[str] = (),
    budget: str | float = BUDGET_S,
    safe: bool = False,
    progress: ProgressCallback | None = None,
) -> Tuning:
    """Try changes on a training job, keep those that make it clearly over 2 % faster, and measure their total gain.

    The caller's model, optimizer, random numbers, loader and process are left in the state in which they were found.

    Args:
        pipeline: The job, as a Pipeline or a mapping with the same keys.
        try_: Names of changes, and your own changes; None: all that `bottleneck` knows.
        skip: Names of changes not to try.
        budget: Maximum duration: '5m', '90s' or seconds.
        safe: Leave out changes of `bottleneck` that alter what is learned, such as a larger batch.
        progress: Called with a ProgressUpdate between blocks, never inside one.

    Raises:
        UsageError: An unknown change, a budget too short to try one, or a description that cannot be run.
        MeasurementError: The job itself failed. The error's `tuning` attribute has the results until then, as for a
            KeyboardInterrupt.
    """
    chosen = choose(try_, skip, safe=safe)
    return answer(attempt_tuning(as_pipeline(pipeline), chosen, parse_duration(budget), progress))


def answer(attempt: TuningAttempt) -> Tuning:
    """Return the tuning; if it ended early, raise the cause, whose `tuning` attribute has the results until then."""
    if attempt.failure is not None:
        attempt.failure.tuning = attempt.tuning  # type: ignore[attr-defined]  # the documented attribute
        raise attempt.failure
    return attempt.tuning


def attempt_tuning(
    pipeline: Pipeline,
    changes: Sequence[Change],
    budget_s: float,
    progress: ProgressCallback | None = None,
    loop: Loop | None = None,
    seconds: float | None = None,
) -> TuningAttempt:
    """Tune, and restore the state of the job and the process; a failure comes with the results until then.

    Args:
        pipeline: The job.
        changes: Changes that may be tried.
        budget_s: Maximum duration.
        progress: Called between blocks.
        loop: Loop of a script, which is the train step.
        seconds: Time for the number of workers alone, which is then the only change.

    Raises:
        UsageError: The job cannot be tuned; raised before anything is measured.
    """
    check(pipeline)
    if loop is not None:
        pipeline = _with_plain_loader(pipeline)
    device, loader = device_of(pipeline), pipeline.make_loader()
    _check_can_vary(loader, loop)
    options = MeasureOptions(quick=True)
    if loop is not None:
        options = replace(options, source="script", loop=loop)
    group = find_group()
    ranks = Ranks(group)
    around: dict[str, Any] = {
        "tell": progress if progress is not None and group.leads else lambda _: None,
        "left_as_found": partial(left_as_it_was, pipeline, loader, device),
        "opener": partial(open_lane, loop=loop, ranks=ranks),
    }
    if seconds is not None and not group.is_alone:
        raise UsageError("A job of several ranks is tuned by all changes, without --seconds.", "Leave out --seconds.")
    session: TuningSession | WorkerTuning
    if seconds is not None:
        session = WorkerTuning(pipeline, changes[0], seconds, **around)
    else:
        around.update(diagnose=partial(_diagnose, options, ranks), clock=ranks.clock, ranks=ranks)
        session = TuningSession(pipeline, changes, budget_s, in_script=loop is not None, **around)
    session.found.own_s_per_batch = None if loop is None else loop.own_s_per_batch
    failure: BaseException | None = None
    with watching(group):
        try:
            ranks.join()
            session.run()
            ranks.part()
        except BaseException as error:  # noqa: BLE001 - our own bugs are raised again
            failure = what_ended_it(error.__cause__ or error if isinstance(error, LoopEnded) else error, group)
    described = describe_pipeline(pipeline, loader, options.source)
    found = conclude(session.found, session.best, describe_environment(device), described)
    return TuningAttempt(Tuning(**vars(found)), failure, group.leads)


def _check_can_vary(loader: DataLoader[Any], loop: Loop | None) -> None:
    """Refuse a loader of which no variants can be made.

    Raises:
        UsageError: A script's loop takes its batches from something else.
        PipelineError: The loader makes its batches in its own way.
    """
    if loop is not None and isinstance(loader.dataset, Stream):
        raise UsageError(
            "The loop takes its batches from something other than PyTorch's DataLoader, so that nothing can be varied.",
            "`bottleneck run` measures what its input costs.",
        )
    if not can_skip_batches(loader):
        raise PipelineError(
            f"The loader is a {type(loader).__name__} with its own __iter__, which cannot be varied.",
            "Describe the job with a plain DataLoader: Pipeline(dataset=dataset, batch_size=64, ...).",
        )


def _with_plain_loader(pipeline: Pipeline) -> Pipeline:
    """Return the job with a plain DataLoader instead of one that only keeps its workers."""
    loader = pipeline.make_loader()
    if not only_keeps_workers(loader):
        return pipeline
    arguments = {**read_loader_arguments(loader), "persistent_workers": loader.num_workers > 0}
    others = {name: getattr(pipeline, name) for name in FIELD_NAMES if name not in ("dataset", "collate_fn")}
    return type(pipeline).from_loader(build_loader(loader.dataset, loader.collate_fn, arguments), **others)


def _diagnose(options: MeasureOptions, ranks: Ranks, pipeline: Pipeline, budget_s: float) -> Result:
    """Diagnose a job without altering it.

    Raises:
        MeasurementError: The job fails.
    """
    prepare(pipeline.dataset)
    attempt = attempt_diagnosis(pipeline, replace(options, budget_s=budget_s))
    if attempt.failure is not None:
        if isinstance(attempt.failure, KeyboardInterrupt):
            ranks.group.fail(attempt.failure)  # the diagnosis has searched for another cause
        raise attempt.failure
    return ranks.diagnosis(attempt.diagnosis)
