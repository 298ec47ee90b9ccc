"""`bottleneck run SCRIPT ARGS`."""

from __future__ import annotations

import multiprocessing
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import click

from bottleneck.analysis.price import with_price
from bottleneck.cli.boundary import exit_status_of, flushed
from bottleneck.cli.diagnose import gate
from bottleneck.cli.measuring import require_torch, write_attempt
from bottleneck.cli.options import as_bytes, as_seconds, as_share, price_option, traceback_option
from bottleneck.cli.outputs import plan_outputs, standard_output_kept
from bottleneck.cli.progress import open_progress
from bottleneck.errors import ExitStatus, UsageError
from bottleneck.measure.options import MAX_SEED, MeasureOptions
from bottleneck.script.launch import Script

if TYPE_CHECKING:
    from bottleneck.api import Attempt


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.option("--seed", type=click.IntRange(0, MAX_SEED), default=0, show_default=True, help="Seed of the diagnosis.")
@click.option("--budget", callback=as_seconds, metavar="TIME", help="Time it may take: 90s, 2m, 1m30s.")
@click.option("--quick", is_flag=True, help="Aim at 20 seconds, or the --budget, and wider intervals.")
@click.option("--cache-bytes", callback=as_bytes, metavar="SIZE", help="Memory that its caches may take: 8GiB, 500MB.")
@click.option(
    "--skip-steps", type=click.IntRange(1), default=3, show_default=True, help="Steps of training before the measuring."
)
@click.option("--json", metavar="FILE", help="Write the result with its raw blocks.")
@click.option("--markdown", metavar="FILE", help="Write a report for a pull request.")
@click.option("--html", metavar="FILE", help="Write a report as a web page.")
@click.option(
    "--fail-under",
    callback=as_share,
    metavar="SHARE",
    help="Exit 1 when the efficiency is surely below, as 0.9 or 90%.",
)
@price_option
@traceback_option
@click.argument("arguments", metavar="SCRIPT [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run_command(  # noqa: PLR0913, PLR0917 - the options of the contract
    module: str | None,
    seed: int,
    budget: float | None,
    quick: bool,
    cache_bytes: int | None,
    skip_steps: int,
    json: str | None,
    markdown: str | None,
    html: str | None,
    fail_under: float | None,
    gpu_hour_price: float | None,
    arguments: tuple[str, ...],
) -> int:
    """Find what holds a training script back, without a change to it.

    SCRIPT is run as Python would run it, with its own arguments, and stopped when the measuring is done: nothing
    that it would do after its training is done.
    """
    if module is None and not arguments:
        raise UsageError("No script is given.", "Write bottleneck run path/to/train.py ARGS.")
    script = Script(arguments[0], arguments[1:]) if module is None else Script(module, arguments, is_module=True)
    script.check()
    outputs = plan_outputs({"json": json, "markdown": markdown, "html": html})
    options = MeasureOptions(budget_s=budget, quick=quick, seed=seed, cache_budget_bytes=cache_bytes, restore=False)
    require_torch()
    from bottleneck.script.diagnosing import Diagnosing

    def report(attempt: Attempt) -> int:
        return _report(attempt, outputs, fail_under, gpu_hour_price)

    kept = standard_output_kept()
    kept.__enter__()
    progress = open_progress()

    def finish(attempt: Attempt) -> NoReturn:
        # From here on nothing of the script's runs: its model was trained on the same few batches again and again.
        progress.__exit__(None, None, None)
        kept.__exit__(None, None, None)
        try:
            status = report(attempt)
        except BaseException as error:  # noqa: BLE001 - no exception of ours reaches the script
            status = exit_status_of(error)
        _end_process(status)

    with Diagnosing(options, finish, progress.__enter__(), skip_steps) as diagnosing:
        ended: BaseException | None = None
        try:
            script.run()
        except BaseException as error:  # noqa: BLE001 - it is reported, with what was measured
            ended = error
        progress.__exit__(None, None, None)
        kept.__exit__(None, None, None)
        return report(diagnosing.end(ended))


def _report(attempt: Attempt, outputs: dict[str, str], fail_under: float | None, gpu_hour_price: float | None) -> int:
    if gpu_hour_price is not None:
        attempt = replace(attempt, diagnosis=with_price(attempt.diagnosis, gpu_hour_price))
    write_attempt(attempt, outputs)
    return ExitStatus.OK if fail_under is None else gate(attempt.diagnosis, fail_under)


def _end_process(status: int) -> NoReturn:
    for child in multiprocessing.active_children():
        child.terminate()
    status = flushed(status)
    if sys.stderr is not None:
        sys.stderr.flush()
    os._exit(status)
