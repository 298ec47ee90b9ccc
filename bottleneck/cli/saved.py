"""Commands on saved results, which need no torch: `report`, `compare` and `plan`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from bottleneck.analysis.settings import with_price
from bottleneck.cli.options import (
    Command,
    as_bytes_per_s,
    as_cores,
    as_loss,
    as_price,
    as_speed,
    price_option,
    traceback_option,
    verbose_option,
)
from bottleneck.cli.output import STANDARD_OUTPUT, check_writable, plan_outputs, print_report, say, write_rendered
from bottleneck.errors import ExitStatus, ResultFileError, UsageError
from bottleneck.monitor.file import read_events
from bottleneck.reports.render import FORMATS, find_links, for_terminal, render
from bottleneck.results.comparison import Comparison
from bottleneck.results.files import append_text, read_stream, read_text, reason
from bottleneck.results.format import percent, percent_interval
from bottleneck.results.json import from_json, saved_from_json
from bottleneck.results.monitor import Monitored, are_events
from bottleneck.results.plan import PlanResult
from bottleneck.results.records import Result
from bottleneck.results.tuning import TuningResult
from bottleneck.results.watched import WatchedResult

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
STANDARD_INPUT = "-"

_format_option = click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="Format of the report."
)
_output_option = click.option("-o", "--output", metavar="FILE", default=STANDARD_OUTPUT, help="Output file.")
_force_option = click.option("--force", is_flag=True, help="Compare even if machine or pipeline differ.")


@click.command("report", cls=Command, epilog="'-' is standard input for RESULT.json and standard output for FILE.")
@click.argument("result", metavar="RESULT.json")
@_format_option
@_output_option
@click.option("--base", metavar="BASE.json", help="Begin with the changes since this result (markdown, html).")
@_force_option
@click.option("--link-prefix", metavar="URL", help="Link files next to RESULT.json, published at URL (markdown).")
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
    """Turn a saved result, or the events of a monitored run, into a report."""
    if link_prefix is not None and format_ != "markdown" and not github_summary:
        raise UsageError("--link-prefix is for markdown.", "Add --format markdown, or --github-summary.")
    if base is not None and format_ not in ("markdown", "html") and not github_summary:
        raise UsageError("--base is for markdown and HTML.", "Add --format markdown or --format html.")
    summary = _summary_file() if github_summary else None
    plan_outputs({"output": output}, base, None if format_ == "json" else result)
    _refuse_two_from_standard_input((result, base))
    saved = _saved(result)
    compared = None
    if isinstance(saved, TuningResult | WatchedResult | Monitored):
        asked = {"--base": base, "--link-prefix": link_prefix, "--gpu-hour-price": gpu_hour_price}
        for option in (option for option, value in asked.items() if value is not None):
            kind = "a tuning" if isinstance(saved, TuningResult) else "of a job that was watched"
            raise UsageError(
                f"{option} is for the result of one diagnosis, but this is {kind}.", f"Leave out {option}."
            )
    else:
        saved = saved if gpu_hour_price is None else with_price(saved, gpu_hour_price)
        compared = _compare(from_json(*_read(base)), saved, ("base", "head"), force=force) if base is not None else None
    links = find_links(Path(result), link_prefix) if link_prefix is not None else ()
    if summary is not None:
        append_text(summary, render(saved, "markdown", compared, links) + "\n")
    if format_ == "text":
        report = for_terminal(saved, verbose=verbose)
        print_report(report) if output == STANDARD_OUTPUT else write_rendered(report.plain(), output)
    else:
        write_rendered(render(saved, format_, compared, links), output)
    return ExitStatus.OK


def _saved(path: str) -> Result | TuningResult | WatchedResult | Monitored:
    """Return the content of a file: a result, or the events of a monitored run, which may be of any size."""
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8", errors="replace") as stream:
        if path != STANDARD_INPUT and are_events(stream.read(64)):
            return read_events(path)
    text, name = _read(path)
    return Monitored.of(text.splitlines()) if are_events(text[:64]) else saved_from_json(text, name)


def _summary_file() -> str:
    path = os.environ.get(SUMMARY_VARIABLE)
    if not path:
        raise UsageError(
            f"{SUMMARY_VARIABLE}, which --github-summary needs, is not set in the environment.",
            "GitHub Actions sets it in each step; elsewhere use -o FILE.",
        )
    check_writable(path)
    return path


@click.command("compare", cls=Command)
@click.argument("results", metavar="BASE.json HEAD.json", nargs=-1, required=True)
@_format_option
@_output_option
@_force_option
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
    """Compare two saved results: the experiments that got faster or slower, and the bottleneck now."""
    if len(results) != 2:
        given = "Only one result was" if len(results) == 1 else f"{len(results)} results were"
        raise UsageError(f"{given} given.", "Write: bottleneck compare BASE.json HEAD.json")
    _refuse_two_from_standard_input(results)
    plan_outputs({"output": output}, *results)
    base, head = (from_json(*_read(path)) for path in results)
    compared = _compare(base, head, short_labels(*results), force=force)
    _write(compared, format_, output)
    return ExitStatus.OK if allowed_loss is None else _gate(compared, allowed_loss)


@click.command("plan", cls=Command, epilog="Several results of one job, at other settings, improve the fit.")
@click.argument("results", metavar="RESULT.json...", nargs=-1, required=True)
@click.option("--gpus", type=click.IntRange(1, 100_000), metavar="N", help="GPUs of the machine.")
@click.option("--cores", callback=as_cores, metavar="N", help="Cores of the machine, for all of its GPUs.")
@click.option(
    "--device-speed",
    callback=as_speed,
    metavar="FACTOR",
    default="1",
    show_default=True,
    help="Speed of a GPU relative to the measured device.",
)
@click.option("--storage", callback=as_bytes_per_s, metavar="RATE", help="Throughput of the storage: 2GB/s.")
@click.option("--gpu-hour-price", callback=as_price, metavar="PRICE", help="Price of a GPU for an hour.")
@click.option("--core-hour-price", callback=as_price, metavar="PRICE", help="Price of a core for an hour.")
@_format_option
@_output_option
@traceback_option
def plan_command(
    results: tuple[str, ...],
    gpus: int | None,
    cores: float | None,
    device_speed: float,
    storage: float | None,
    gpu_hour_price: float | None,
    core_hour_price: float | None,
    format_: str,
    output: str,
) -> int:
    """Find the machine that a job needs: cores for each GPU, memory, storage, and the price of a million samples."""
    from bottleneck.analysis.plan.plan import Asked, plan

    _refuse_two_from_standard_input(results)
    plan_outputs({"output": output}, *results)
    asked = Asked(gpus, cores, device_speed, storage, gpu_hour_price, core_hour_price)
    planned = plan([from_json(*_read(path)) for path in results], [Path(path).stem for path in results], asked)
    _write(planned, format_, output)
    return ExitStatus.OK


def _write(reported: Comparison | PlanResult, format_: str, output: str) -> None:
    if format_ == "text" and output == STANDARD_OUTPUT:
        print_report(for_terminal(reported))
    else:
        write_rendered(render(reported, format_), output)


def _compare(base: Result, head: Result, labels: tuple[str, str], *, force: bool) -> Comparison:
    from bottleneck.analysis.comparison import compare  # numpy and scipy, not needed for --help

    return compare(base, head, labels=labels, force=force)


def short_labels(base: str, head: str) -> tuple[str, str]:
    """Return names of two files: without folder and ending if those differ, otherwise without the common folders."""
    names = Path(base).stem, Path(head).stem
    places = [os.path.abspath(path) for path in (base, head)]
    if names[0] != names[1] or places[0] == places[1]:
        return names
    first, second = (os.path.relpath(place, os.path.commonpath(places)) for place in places)
    return first, second


def _gate(compared: Comparison, allowed_loss: float) -> int:
    from bottleneck.analysis.comparison import lost_throughput

    lost = lost_throughput(compared)
    if lost is None:
        say("It is unknown if throughput was lost, so --fail-on-regression does not fail.")
        return ExitStatus.OK
    if lost.low > allowed_loss:
        say(f"Gate failed: {percent_interval(lost)} of the throughput is lost; {percent(allowed_loss)} is allowed.")
        return ExitStatus.GATE_FAILED
    return ExitStatus.OK


def _read(path: str) -> tuple[str, str]:
    """Return the text of a file or of standard input, and its name for messages."""
    if path != STANDARD_INPUT:
        return read_text(path), path
    remedy = "Give the path of a saved result."
    if sys.stdin is None or sys.stdin.closed:  # None if the process was started without one
        raise ResultFileError("Standard input is closed.", remedy)
    try:
        # Bytes, and at most as many as a result may have.
        return read_stream(sys.stdin.buffer, "standard input"), "standard input"
    except OSError as error:
        raise ResultFileError(f"Cannot read standard input: {reason(error)}.", remedy) from None


def _refuse_two_from_standard_input(paths: Sequence[str | None]) -> None:
    if sum(path == STANDARD_INPUT for path in paths) > 1:
        raise UsageError("Standard input can provide only one result.", "Use a file for the other.")
