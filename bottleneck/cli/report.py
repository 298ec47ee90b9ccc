"""`bottleneck report RESULT.json`. Needs no torch."""

from __future__ import annotations

import sys

import click

from bottleneck.analysis.price import with_price
from bottleneck.cli.options import price_option, traceback_option
from bottleneck.cli.outputs import STANDARD_OUTPUT, check_writable, write_report
from bottleneck.errors import ExitStatus
from bottleneck.reports.render import FORMATS
from bottleneck.results.codec import from_json, load


@click.command("report", epilog="'-' is standard input for RESULT.json and standard output for FILE.")
@click.argument("result", metavar="RESULT.json")
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Form of the report.",
)
@click.option("-o", "--output", metavar="FILE", default=STANDARD_OUTPUT, help="Write it there.")
@price_option
@traceback_option
def report_command(result: str, format_: str, output: str, gpu_hour_price: float | None) -> int:
    """Turn a saved result into a report."""
    if output != STANDARD_OUTPUT:
        check_writable(output)
    loaded = from_json(sys.stdin.read(), "standard input") if result == STANDARD_OUTPUT else load(result)
    if gpu_hour_price is not None:
        loaded = with_price(loaded, gpu_hour_price)
    write_report(loaded, format_, output)
    return ExitStatus.OK
