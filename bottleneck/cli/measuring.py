"""What the commands that measure share: the job keeps off standard output, and a failure loses no result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from bottleneck.cli.outputs import standard_output_kept, working_directory_kept, write_outputs
from bottleneck.cli.printing import say
from bottleneck.cli.progress import open_progress
from bottleneck.errors import MeasurementError
from bottleneck.job.users_code import said_by
from bottleneck.measure.options import MeasureOptions
from bottleneck.results.records import Result

if TYPE_CHECKING:
    from bottleneck.api import Attempt
    from bottleneck.job.pipeline import Pipeline


def measure_job(build: Callable[[], Pipeline], options: MeasureOptions) -> Attempt:
    """Build a job and diagnose it, in a process that ends afterwards: its state is not put back.

    Raises:
        UsageError: The job cannot be built or run.
        MeasurementError: PyTorch is missing or does not work.
    """
    require_torch()
    # Torch comes with this, so that wrong options are refused without waiting for it.
    from bottleneck.api import attempt_diagnosis

    with working_directory_kept(), standard_output_kept():
        pipeline = build()
        with open_progress() as progress:
            return attempt_diagnosis(pipeline, replace(options, restore=False), progress)


def require_torch() -> None:
    """Import torch.

    Raises:
        MeasurementError: It is missing or does not work.
    """
    try:
        import torch  # noqa: F401 - only whether it can be
    except (ImportError, OSError) as error:
        raise MeasurementError(
            f"PyTorch cannot be imported: {said_by(error).rstrip('.')}.",
            "Install it: pip install torch torchvision; bottleneck doctor says more.",
        ) from error


def write_attempt(
    attempt: Attempt,
    outputs: Mapping[str, str],
    *,
    flamegraph: str | None = None,
    trace: str | None = None,
    verbose: bool = False,
) -> None:
    """Write what was measured, if anything was, and raise what ended the measuring early.

    Raises:
        MeasurementError: The job failed.
        KeyboardInterrupt: The diagnosis was interrupted.
        UsageError: A file could not be written.
    """
    try:
        if attempt.failure is None or _has_blocks(attempt.diagnosis):
            write_outputs(attempt.diagnosis, outputs, verbose=verbose)
            for path in attempt.write_files(flamegraph, trace):
                say(f"Wrote {path}")
    finally:
        if attempt.failure is not None:
            raise attempt.failure


def _has_blocks(result: Result) -> bool:
    rates = [rate for e in result.experiments for rate in (e.coupled, e.drained)]
    return any(rate is not None and rate.blocks for rate in rates)
