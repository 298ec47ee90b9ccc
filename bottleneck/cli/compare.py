"""`bottleneck compare BASE.json HEAD.json`. Needs no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from bottleneck.cli.help import Command
from bottleneck.cli.inputs import read_result, refuse_two_from_standard_input
from bottleneck.cli.options import as_loss, traceback_option
from bottleneck.cli.outputs import STANDARD_OUTPUT, check_writable, refuse_to_replace, write_rendered
from bottleneck.cli.printing import print_report, say
from bottleneck.errors import ExitStatus, UsageError
from bottleneck.reports.render import FORMATS, for_terminal, render
from bottleneck.results.comparison import Comparison
from bottleneck.results.format import percent, percent_interval


@click.command("compare", cls=Command)
@click.argument("results", metavar="BASE.json HEAD.json", nargs=-1, required=True)
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="Format of the report."
)
@click.option("-o", "--output", metavar="FILE", default=STANDARD_OUTPUT, help="Write the report there.")
@click.option("--force", is_flag=True, help="Compare even if machine or pipeline differ.")
@click.option(
    "--fail-on-regression",
    "allowed_loss",
    metavar="SHARE",
    callback=as_loss,
    help="Exit 1 if HEAD is slower than BASE by more than this: 0.05 or 5%.",
)
@traceback_option
def compare_command(
    results: tuple[str, ...], format_: str, output: str, force: bool, allowed_loss: float | None
) -> int:
    """Compare saved results: what is faster in HEAD than in BASE, what is slower, and what is the bottleneck now."""
    if len(results) < 2:
        raise UsageError("Only one result was given.", "Give two: bottleneck compare BASE.json HEAD.json")
    if len(results) > 2:
        raise UsageError(f"{len(results)} results were given.", "Compare two at a time: compare BASE.json HEAD.json")
    refuse_two_from_standard_input(results)
    if output != STANDARD_OUTPUT:
        refuse_to_replace(output, results, "a result that is read")
        check_writable(output)
    compared = _compare(results, force=force)
    if format_ == "text" and output == STANDARD_OUTPUT:
        print_report(for_terminal(compared))
    else:
        write_rendered(render(compared, format_), output)
    return ExitStatus.OK if allowed_loss is None else _gate(compared, allowed_loss)


def _compare(paths: Sequence[str], *, force: bool) -> Comparison:
    from bottleneck.analysis.comparison import compare  # numpy and scipy, which --help does not need

    base, head = (read_result(path) for path in paths)
    labels = short_labels(paths)
    return compare(base, head, labels=(labels[0], labels[1]), force=force)


def short_labels(paths: Sequence[str]) -> list[str]:
    """File names without what all of them share: their folder and ending; as much of the path as tells them apart."""
    stems = [Path(path).stem for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    absolute = [os.path.abspath(path) for path in paths]
    if len(set(absolute)) < len(absolute):  # one file twice
        return [f"{stem} ({number})" for number, stem in enumerate(stems, 1)]
    common = os.path.commonpath(absolute)
    return [os.path.splitext(os.path.relpath(path, common))[0] for path in absolute]


def _gate(compared: Comparison, allowed_loss: float) -> int:
    from bottleneck.analysis.comparison import lost_throughput

    lost = lost_throughput(compared)
    if lost is None:
        say("Whether throughput was lost is unknown, so --fail-on-regression does not fail.")
        return ExitStatus.OK
    if lost.low > allowed_loss:
        say(f"Gate failed: {percent_interval(lost)} of the throughput is lost; {percent(allowed_loss)} is allowed.")
        return ExitStatus.GATE_FAILED
    return ExitStatus.OK
