"""`bottleneck tune TARGET`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from bottleneck.cli.measure import require_torch, source_of, with_source
from bottleneck.cli.options import Command, as_names, as_seconds, traceback_option, verbose_option
from bottleneck.cli.output import (
    open_progress,
    plan_outputs,
    standard_output_kept,
    working_directory_kept,
    write_outputs,
)
from bottleneck.errors import ExitStatus
from bottleneck.job.target import check_target
from bottleneck.results.tuning import TuningResult

if TYPE_CHECKING:
    from bottleneck.tuning.tune import TuningAttempt


@click.command(
    "tune",
    cls=Command,
    epilog="With '-' for FILE, standard output holds that file and nothing else.",
)
@click.argument("target")
@click.option(
    "--try",
    "tried",
    metavar="NAME",
    multiple=True,
    callback=as_names,
    help="Try only this change, or these with commas between; may be repeated.",
)
@click.option(
    "--skip",
    metavar="NAME",
    multiple=True,
    callback=as_names,
    help="Do not try this change, or these with commas between; may be repeated.",
)
@click.option("--safe", is_flag=True, help="Leave out what alters what is learned, such as a larger batch.")
@click.option(
    "--budget", callback=as_seconds, metavar="TIME", default="5m", show_default=True, help="How long it may take."
)
@click.option("--json", metavar="FILE", help="Write the result, for report and compare.")
@click.option("--markdown", metavar="FILE", help="Write a report for a pull request.")
@click.option("--html", metavar="FILE", help="Write a report as a web page.")
@verbose_option
@traceback_option
def tune_command(
    target: str,
    tried: tuple[str, ...],
    skip: tuple[str, ...],
    safe: bool,
    budget: float,
    json: str | None,
    markdown: str | None,
    html: str | None,
    verbose: bool,
) -> int:
    """Try the known fixes on a training job, keep those that surely help, and print the changed lines.

    TARGET is path/to/file.py:function or package.module:function. The function takes no arguments and returns a
    bottleneck.Pipeline.
    """
    check_target(target)
    outputs = plan_outputs({"json": json, "markdown": markdown, "html": html}, target.rpartition(":")[0])
    source = source_of(target)
    attempt = _tune(target, tried, skip, budget, safe=safe)
    try:
        if attempt.failure is None or attempt.tuning.before is not None:
            write_outputs(tuned_from(attempt.tuning, source), outputs, verbose=verbose)
    finally:
        if attempt.failure is not None:
            raise attempt.failure
    return ExitStatus.OK


def tuned_from(found: TuningResult, source: Mapping[str, str]) -> TuningResult:
    """The tuning, which says what was tuned, as its two diagnoses do."""
    before, after = (None if each is None else with_source(each, source) for each in (found.before, found.after))
    return with_source(replace(found, before=before, after=after), source)


def _tune(target: str, tried: tuple[str, ...], skip: tuple[str, ...], budget_s: float, *, safe: bool) -> TuningAttempt:
    require_torch()
    from bottleneck.job.target import build_pipeline
    from bottleneck.tuning.changes import choose
    from bottleneck.tuning.tune import attempt_tuning

    changes = choose(tried or None, skip, safe=safe)
    with working_directory_kept(), standard_output_kept():
        pipeline = build_pipeline(target)
        with open_progress() as progress:
            return attempt_tuning(pipeline, changes, budget_s, progress)
