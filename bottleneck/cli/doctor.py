"""`bottleneck doctor`: what on this machine hinders measuring, and what to do about it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import click

from bottleneck.cli.help import Command
from bottleneck.cli.options import traceback_option
from bottleneck.cli.outputs import standard_output_kept
from bottleneck.cli.printing import output_refused_as_usage
from bottleneck.doctor import Finding, examine_machine
from bottleneck.errors import ExitStatus, UsageError
from bottleneck.reports import sanitize

_MARKS = {"ok": "ok     ", "warning": "warning", "problem": "PROBLEM"}
_WIDTH = 80


@click.command(
    "doctor",
    cls=Command,
    context_settings={"allow_extra_args": True},
    epilog="Exit status: 3 if a problem makes measuring impossible, else 0.",
)
@traceback_option
@click.pass_context
def doctor_command(context: click.Context) -> int:
    """Check that this machine is ready to be measured."""
    if context.args:
        raise UsageError(
            f"doctor takes no target: check it by a run of `bottleneck diagnose {context.args[0]} --quick`."
        )
    with standard_output_kept():
        findings = examine_machine()
    with output_refused_as_usage():
        click.echo(render_findings(findings), nl=False)
    failed = any(finding.status == "problem" for finding in findings.values())
    return ExitStatus.COULD_NOT_MEASURE if failed else ExitStatus.OK


def render_findings(findings: Mapping[str, Finding]) -> str:
    """Each finding as a paragraph of 80 columns, with its remedy below."""
    width = max(map(len, findings))
    lines = []
    for subject, finding in findings.items():
        lines += _wrapped(finding.message, f"{_MARKS[finding.status]}  {subject:<{width}}  ")
        if finding.remedy:
            lines += _wrapped(finding.remedy, " " * (9 + width) + "  -> ")
    return "\n".join(lines) + "\n"


def _wrapped(text: str, start: str) -> list[str]:
    # What a package says may hold anything. A command is not broken at its hyphens.
    shown = sanitize.one_line(text)
    further = " " * len(start)
    return textwrap.wrap(shown, _WIDTH, initial_indent=start, subsequent_indent=further, break_on_hyphens=False)
