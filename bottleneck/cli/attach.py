"""`bottleneck attach`: watch a running job for a while, and leave it unchanged."""

from __future__ import annotations

import click

from bottleneck.cli.options import Command, report_options, traceback_option
from bottleneck.cli.output import open_progress, plan_outputs, write_outputs
from bottleneck.errors import ExitStatus

SECONDS = 15
MIN_SECONDS, MAX_SECONDS = 5, 3600


@click.command(
    "attach",
    cls=Command,
    epilog="The job is neither stopped nor changed. To measure what a fix gains, use `bottleneck run`.",
)
@click.argument("pid", metavar="PID", type=click.IntRange(1))
@click.option(
    "--seconds",
    type=click.IntRange(MIN_SECONDS, MAX_SECONDS),
    metavar="N",
    default=SECONDS,
    show_default=True,
    help="Maximum duration.",
)
@report_options
@traceback_option
def attach_command(pid: int, seconds: int, json: str | None, markdown: str | None, html: str | None) -> int:
    """Watch a running training job, and say whether it waits for its data and at which line.

    PID is the job's process or its launcher; workers and ranks are watched with it.
    """
    outputs = plan_outputs({"json": json, "markdown": markdown, "html": html})
    from bottleneck.watching.attach import attach

    with open_progress() as progress:
        found = attach(pid, seconds, progress)
    write_outputs(found, outputs)
    return ExitStatus.OK
