"""`bottleneck doctor [TARGET]`: what in this environment hinders measuring, and what to do about it."""

from __future__ import annotations

import textwrap

import click

from bottleneck.cli.help import Command
from bottleneck.cli.options import as_seconds, traceback_option
from bottleneck.cli.outputs import standard_output_kept
from bottleneck.cli.printing import output_refused_as_usage
from bottleneck.doctor.finding import Finding
from bottleneck.errors import ExitStatus
from bottleneck.reports import sanitize

_MARKS = {"ok": "ok     ", "warning": "warning", "problem": "PROBLEM"}
_WIDTH = 80


@click.command(
    "doctor",
    cls=Command,
    epilog="Exit status: 2 if TARGET is wrong, 3 if a problem makes measuring impossible, else 0.",
)
@click.argument("target", required=False)
@click.option(
    "--limit",
    metavar="TIME",
    default="2m",
    show_default=True,
    callback=as_seconds,
    help="How long each check of TARGET may take.",
)
@traceback_option
def doctor_command(target: str | None, limit: float) -> int:
    """Check that this machine, and a job, are ready to be measured.

    With TARGET (path/to/file.py:function or package.module:function) the pipeline is built, its dataset is pickled,
    and a worker loads a first batch. This happens in a separate process, which is killed if it hangs.

    Under a launcher (torchrun --nproc-per-node 8 -m bottleneck doctor) the first rank tells what each rank sees, and
    how they differ.
    """
    # Some checks import torch; where that or another package is missing, it is a finding, not a failure.
    from bottleneck.doctor.machine import examine_environment
    from bottleneck.doctor.ranks import ask_ranks, examine_place, find_launch

    with standard_output_kept():
        findings = examine_environment()
        if target is not None:
            from bottleneck.doctor.job_checks.target import examine_target

            findings += examine_target(target, limit)
        launch = find_launch()
        if launch is None:
            findings += examine_place()
        else:
            findings += ask_ranks(launch, findings)
            if launch.rank:  # the first one tells; torchrun would end it, if another had another status than 0
                return ExitStatus.OK
    with output_refused_as_usage():
        click.echo(render_findings(findings), nl=False)
    # The highest status counts: on a machine with a problem no target can be measured.
    return max((finding.exit_status for finding in findings if finding.status == "problem"), default=ExitStatus.OK)


def render_findings(findings: list[Finding]) -> str:
    """Each finding as a paragraph of 80 columns, with its remedy below."""
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        lines += _wrapped(finding.message, f"{_MARKS[finding.status]}  {finding.subject:<{width}}  ")
        if finding.remedy:
            lines += _wrapped(finding.remedy, " " * (9 + width) + "  -> ")
    return "\n".join(lines) + "\n"


def _wrapped(text: str, start: str) -> list[str]:
    # What the user's code says may hold anything. A command is not broken at its hyphens.
    shown = sanitize.one_line(text)
    further = " " * len(start)
    return textwrap.wrap(shown, _WIDTH, initial_indent=start, subsequent_indent=further, break_on_hyphens=False)
