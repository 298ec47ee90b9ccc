"""The entry to measuring: a pipeline in, its measurement out, everything restored and any failure explained."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

from bottleneck.errors import ExitStatus, MeasurementError
from bottleneck.job.cuts import find_sites
from bottleneck.job.pipeline import Pipeline
from bottleneck.job.step import device_of
from bottleneck.measure.device import JobOnDevice
from bottleneck.measure.explain_errors import explain_end
from bottleneck.measure.keep.preserved import Preserved, left_as_it_was
from bottleneck.measure.ledger import Ledger, describe_pipeline
from bottleneck.measure.machine.environment import describe_environment
from bottleneck.measure.options import MeasureOptions, ProgressCallback
from bottleneck.measure.ranks.group import World, find_group
from bottleneck.measure.ranks.team import options_of_rank
from bottleneck.measure.ranks.watch import watching
from bottleneck.measure.rounds.schedule import Timekeeper
from bottleneck.measure.rounds.standing import Judge
from bottleneck.measure.session import Session
from bottleneck.results.records import NO_TRIALS, RankTrials, Result
from bottleneck.results.warnings.too_little import ended_early
from bottleneck.results.warnings.unseen import status_of_launcher


@dataclass(frozen=True)
class Outcome:
    """The measurement, and the failure that ended it early, if any."""

    measurement: Result
    """Without conclusions."""
    failure: BaseException | None = None
    profile_files: Mapping[str, str] = field(default_factory=dict)
    """Contents of py-spy's files by name."""
    traces: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of the files of torch's profiler by name."""
    rank_trials: RankTrials = NO_TRIALS
    leads: bool = True
    """True on rank 0, whose measurement covers the whole job."""


def measure(
    pipeline: Pipeline,
    options: MeasureOptions,
    *,
    judge: Judge,
    on_progress: ProgressCallback,
    clock: Callable[[], float] = time.perf_counter,
) -> Outcome:
    """Measure a pipeline that has been checked, and restore everything if the options ask for that.

    Failures of the user's code and Ctrl-C do not raise: they end the measuring, and are returned with the measurements
    so far.

    Args:
        judge: Judges if the blocks so far suffice.
        on_progress: Called between blocks.
        clock: Monotonic seconds.

    Raises:
        PipelineError: The description cannot be run.
        MeasurementError: There is no memory for a copy of the job's state.
    """
    group = find_group()
    device = device_of(pipeline)
    loader = pipeline.make_loader()
    sites = find_sites(loader.dataset, pipeline.augment)
    ledger = Ledger(describe_environment(device), describe_pipeline(pipeline, loader, options.source))
    left_as_found = left_as_it_was(pipeline, loader, device)
    failure: BaseException | None = None
    kept: Preserved | None = None
    options = options_of_rank(options, group, ledger)
    with watching(group):
        try:
            with left_as_found if options.restore else nullcontext() as kept:
                group.join()
                timekeeper = Timekeeper(options, on_progress if group.leads else lambda _: None, clock)
                job = JobOnDevice.of(pipeline, loader, device, options.loop)
                session = Session(job, sites, options, ledger, judge, timekeeper, group)
                try:
                    session.run()
                finally:
                    session.close()
        except BaseException as error:  # noqa: BLE001 - bugs of bottleneck are raised again
            failure = what_ended_it(error, group)
            _note_early_end(failure, group, ledger)
    ledger.warn_all(kept.notes if kept is not None else ())
    measured, trials = ledger.measurement(), ledger.rank_trials
    return Outcome(measured, failure, ledger.profile_files, ledger.traces, trials, group.leads)


def _note_early_end(failure: BaseException, group: World, ledger: Ledger) -> None:
    ledger.warn(ended_early(failure.message if isinstance(failure, MeasurementError) else None))
    if not group.is_alone and "TORCHELASTIC_RUN_ID" in os.environ:
        ledger.warn(status_of_launcher(int(getattr(failure, "exit_status", ExitStatus.INTERRUPTED))))


def what_ended_it(error: BaseException, group: World) -> BaseException:
    """Return the error that ended the measuring, explained; raise bugs of bottleneck unchanged."""
    try:
        found = explain_end(error)
    except BaseException as fault:
        group.fail(fault)
        raise
    return group.root_failure(found)
