"""`bottleneck tune TARGET`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bottleneck.cli.help import Command
from bottleneck.cli.job_source import current_commit, tuned_from
from bottleneck.cli.measuring import require_torch
from bottleneck.cli.options import as_names, as_seconds, traceback_option, verbose_option
from bottleneck.cli.outputs import (
    plan_outputs,
    refuse_to_replace,
    standard_output_kept,
    working_directory_kept,
    write_outputs,
)
from bottleneck.cli.progress import open_progress
from bottleneck.errors import ExitStatus
from bottleneck.job.target import check_target

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
    outputs = plan_outputs({"json": json, "markdown": markdown, "html": html})
    for path in outputs.values():
        refuse_to_replace(path, (target.rpartition(":")[0],), "the file of the target")
    commit = current_commit()
    attempt = tuned_from(_tune(target, tried, skip, budget, safe=safe), target, commit)
    try:
        if attempt.failure is None or attempt.tuning.before is not None:
            write_outputs(attempt.tuning, outputs, verbose=verbose)
    finally:
        if attempt.failure is not None:
            raise attempt.failure
    return ExitStatus.OK


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
