"""`bottleneck doctor [TARGET]`: what in this environment hinders measuring, and what to do about it."""

from __future__ import annotations

import click

from bottleneck.cli.checkup import Finding, examine_environment, examine_target
from bottleneck.cli.options import traceback_option
from bottleneck.cli.outputs import standard_output_kept
from bottleneck.errors import ExitStatus

_MARKS = {"ok": "ok     ", "warning": "warning", "problem": "PROBLEM"}


@click.command("doctor", epilog="Exit status: 2 for a bad target, 3 when a problem makes measuring impossible, else 0.")
@click.argument("target", required=False)
@traceback_option
def doctor_command(target: str | None) -> int:
    """Say what in this environment hinders measuring.

    With TARGET (package.module:function or path/to/file.py:function) its pipeline is built and checked too.
    """
    with standard_output_kept():
        findings = examine_environment()
        if target is not None:
            findings += examine_target(target)
    click.echo(render_findings(findings), nl=False)
    # Of several problems that of the machine counts: there no target can be measured.
    return max((finding.exit_status for finding in findings if finding.status == "problem"), default=ExitStatus.OK)


def render_findings(findings: list[Finding]) -> str:
    """One line a finding, its remedy on the next."""
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{_MARKS[finding.status]}  {finding.subject:<{width}}  {finding.message}")
        if finding.remedy:
            lines.append(f"{'':9}{'':<{width}}  -> {finding.remedy}")
    return "\n".join(lines) + "\n"
