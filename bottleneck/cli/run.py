"""`bottleneck run SCRIPT ARGS`."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from bottleneck.cli.boundary import exit_status_of, flushed
from bottleneck.cli.job_source import current_commit, with_source
from bottleneck.cli.measuring import require_torch
from bottleneck.cli.outputs import refuse_to_replace, standard_output_kept
from bottleneck.cli.progress import open_progress
from bottleneck.cli.request import Request, measuring_options
from bottleneck.errors import UsageError
from bottleneck.script.launch import Script

if TYPE_CHECKING:
    from bottleneck.api import Attempt


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Options come before SCRIPT; what follows it is the script's.",
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.option(
    "--loader", metavar="NAME", help="Which DataLoader, where several feed the loop: a number, or its dataset's class."
)
@click.option(
    "--skip-steps", type=click.IntRange(1), default=3, show_default=True, help="Steps of training before the measuring."
)
@measuring_options
@click.argument("arguments", metavar="SCRIPT [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run_command(
    module: str | None, loader: str | None, skip_steps: int, arguments: tuple[str, ...], **asked: Any
) -> int:
    """Find what holds a training script back, without a change to it.

    SCRIPT is run as Python would run it, with its own arguments, and stopped when the measuring is done: nothing
    that it would do after its training is done.
    """
    if module is None and not arguments:
        raise UsageError("No script is given.", "Write bottleneck run path/to/train.py ARGS.")
    script = Script(arguments[0], arguments[1:]) if module is None else Script(module, arguments, is_module=True)
    script.check()
    for path in filter(None, (asked["json"], asked["markdown"], asked["html"])):
        refuse_to_replace(path, (script.name,), "the script")
    request, commit = Request.of(**asked), current_commit()
    require_torch()
    from bottleneck.script.diagnosing import Diagnosing

    with contextlib.ExitStack() as ours:
        ours.enter_context(standard_output_kept())
        progress = ours.enter_context(open_progress())

        def finish(outcome: Callable[[], Attempt]) -> NoReturn:
            # From here on nothing of the script's runs: its model was trained on the same few batches again and again.
            ours.close()
            try:
                status = request.answer(with_source(outcome(), script.name, commit))
            except BaseException as error:  # noqa: BLE001 - no exception of ours reaches the script
                status = exit_status_of(error)
            _end_process(status)

        options = replace(request.options, restore=False)
        with Diagnosing(options, finish, progress, skip_steps, loader) as diagnosing:
            ended: BaseException | None = None
            try:
                script.run()
            except BaseException as error:  # noqa: BLE001 - it is reported, with what was measured
                ended = error
            attempt = diagnosing.end(ended)
    return request.answer(with_source(attempt, script.name, commit))


def _end_process(status: int) -> NoReturn:
    for child in multiprocessing.active_children():
        child.terminate()
    status = flushed(status)
    if sys.stderr is not None:
        sys.stderr.flush()
    os._exit(status)
