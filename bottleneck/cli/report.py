"""`bottleneck report RESULT.json`. Needs no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from bottleneck.analysis.price import with_price
from bottleneck.cli.help import Command
from bottleneck.cli.inputs import read_result, read_saved, refuse_two_from_standard_input
from bottleneck.cli.options import price_option, traceback_option, verbose_option
from bottleneck.cli.outputs import (
    STANDARD_OUTPUT,
    check_writable,
    refuse_to_replace,
    write_rendered,
    write_report,
)
from bottleneck.errors import ExitStatus, UsageError
from bottleneck.reports.render import FORMATS, find_links, render
from bottleneck.results.comparison import Comparison
from bottleneck.results.files import append_text
from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


@click.command(
    "report",
    cls=Command,
    epilog="'-' is standard input for RESULT.json and standard output for FILE.",
)
@click.argument("result", metavar="RESULT.json")
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Format of the report.",
)
@click.option("-o", "--output", metavar="FILE", default=STANDARD_OUTPUT, help="Write the report there.")
@click.option("--base", metavar="BASE.json", help="Begin with what changed since this result (markdown, html).")
@click.option("--force", is_flag=True, help="Compare even if machine or pipeline differ.")
@click.option("--link-prefix", metavar="URL", help="Link files beside RESULT.json that are published there (markdown).")
@click.option("--github-summary", is_flag=True, help="Append the markdown to GitHub's job summary too.")
@price_option
@verbose_option
@traceback_option
def report_command(
    result: str,
    format_: str,
    output: str,
    base: str | None,
    force: bool,
    link_prefix: str | None,
    github_summary: bool,
    gpu_hour_price: float | None,
    verbose: bool,
) -> int:
    """Turn a saved result into a report."""
    if link_prefix is not None and format_ != "markdown" and not github_summary:
        raise UsageError("--link-prefix is for markdown.", "Add --format markdown, or --github-summary.")
    if base is not None and format_ not in ("markdown", "html") and not github_summary:
        raise UsageError("--base is for markdown and HTML.", "Add --format markdown or --format html.")
    summary = _summary_file() if github_summary else None
    if output != STANDARD_OUTPUT:
        refuse_to_replace(output, (result if format_ != "json" else None, base), "a result that is read")
        check_writable(output)
    refuse_two_from_standard_input((result, base))
    saved = read_saved(result)
    compared = None
    if isinstance(saved, TuningResult):
        asked = {"--base": base, "--link-prefix": link_prefix, "--gpu-hour-price": gpu_hour_price}
        _refuse_for_a_tuning([option for option, value in asked.items() if value is not None])
    else:
        saved = saved if gpu_hour_price is None else with_price(saved, gpu_hour_price)
        compared = _against(base, saved, force=force) if base is not None else None
    links = find_links(Path(result), link_prefix) if link_prefix is not None else ()
    if summary is not None:
        append_text(summary, render(saved, "markdown", compared, links) + "\n")
    if format_ in ("markdown", "html"):
        write_rendered(render(saved, format_, compared, links), output)
    else:
        write_report(saved, format_, output, verbose=verbose)
    return ExitStatus.OK


def _refuse_for_a_tuning(options: Sequence[str]) -> None:
    for option in options:
        raise UsageError(f"{option} is for the result of one diagnosis, and this is a tuning.", f"Leave {option} out.")


def _against(base: str, head: Result, *, force: bool) -> Comparison:
    from bottleneck.analysis.comparison import compare  # numpy and scipy, which --help does not need

    return compare(read_result(base), head, force=force)


def _summary_file() -> str:
    path = os.environ.get(SUMMARY_VARIABLE)
    if not path:
        raise UsageError(
            f"{SUMMARY_VARIABLE}, which --github-summary needs, is not in the environment.",
            "GitHub Actions sets it in each step; elsewhere use -o FILE.",
        )
    check_writable(path)
    return path
