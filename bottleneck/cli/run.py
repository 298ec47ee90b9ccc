"""`bottleneck run SCRIPT ARGS`."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from bottleneck.cli.boundary import exit_status_of, flushed, leave
from bottleneck.cli.help import Command
from bottleneck.cli.job_source import current_commit, with_source
from bottleneck.cli.measuring import require_torch
from bottleneck.cli.options import as_seconds, traceback_is_asked_for
from bottleneck.cli.outputs import refuse_to_replace, standard_output_kept
from bottleneck.cli.printing import say
from bottleneck.cli.progress import open_progress
from bottleneck.cli.request import Request, measuring_options
from bottleneck.errors import UsageError
from bottleneck.script.launch import Ends, Script, wait_for_threads

if TYPE_CHECKING:
    from bottleneck.api import Attempt


@click.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    epilog="Options of bottleneck come before SCRIPT; what follows belongs to the script.",
    cls=Command,
)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module, as after python -m.")
@click.option(
    "--loader",
    metavar="NAME",
    help="Which DataLoader, if several feed the loop: its number, or the class of its dataset.",
)
@click.option(
    "--skip-steps",
    type=click.IntRange(1),
    metavar="N",
    default=3,
    show_default=True,
    help="Training steps before measuring starts.",
)
@click.option(
    "--step-timeout",
    callback=as_seconds,
    default="5m",
    show_default=True,
    metavar="TIME",
    help="Give up if the loop asks for no batch for so long.",
)
@measuring_options
@click.argument("arguments", metavar="SCRIPT [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run_command(
    is_module: bool,
    loader: str | None,
    skip_steps: int,
    step_timeout: float,
    arguments: tuple[str, ...],
    **asked: Any,
) -> int:
    """Find the bottleneck of a training script, without changing it.

    SCRIPT runs with its own arguments, as Python would run it, until the measurement is done. It is stopped there:
    what comes after the training loop does not run.
    """
    if not arguments:
        raise UsageError("No script is given.", "Write bottleneck run path/to/train.py ARGS.")
    script = Script(arguments[0], arguments[1:], is_module)
    script.check()
    for path in filter(None, map(asked.get, ("json", "markdown", "html"))):
        refuse_to_replace(path, (script.name,), "the script")
    request, commit = Request.of(**asked), current_commit()
    show_traceback = traceback_is_asked_for()
    require_torch()
    from bottleneck.script.diagnosing import Diagnosing

    with contextlib.ExitStack() as ours:
        ours.enter_context(standard_output_kept())
        ours.enter_context(contextlib.redirect_stderr(sys.stderr))  # scripts put a logger in its place
        progress = ours.enter_context(open_progress())

        def finish(outcome: Callable[[], Attempt]) -> NoReturn:
            # From here on nothing of the script's runs: its model was trained on the same few batches again and again.
            ours.close()
            try:
                status = request.answer(with_source(outcome(), script.name, commit))
            except BaseException as error:  # noqa: BLE001 - no exception of ours reaches the script
                status = exit_status_of(error, show_traceback=show_traceback)
            _end_process(status)

        options = replace(request.options, restore=False)
        diagnosing = Diagnosing(options, finish, progress, skip_steps, loader)
        threads = threading.enumerate()
        with diagnosing, diagnosing.notice(say), Ends(diagnosing.leave, diagnosing.lent_s, step_timeout):
            ended: BaseException | None = None
            try:
                script.run()
            except BaseException as error:  # noqa: BLE001 - it is reported, with what was measured
                ended = error
                _say_why(error)
            if diagnosing.is_abandoned:
                diagnosing.leave(ended or SystemExit())
            wait_for_threads(threads)
            attempt = diagnosing.end(ended)
    return request.answer(with_source(attempt, script.name, commit))


def _say_why(error: BaseException) -> None:
    """Print what Python prints of `sys.exit("no --data given")`."""
    if isinstance(error, SystemExit) and error.code is not None and not isinstance(error.code, int):
        say(str(error.code))
    if isinstance(error, KeyboardInterrupt):
        say("")  # ends the line of a bar of progress


def _end_process(status: int) -> NoReturn:
    _release()
    for child in multiprocessing.active_children():
        child.terminate()
    leave(flushed(status))


def _release() -> None:
    """Do what Python does as it ends, and no more: idle workers end, which then remove what is theirs in /tmp."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    for found in gc.get_objects():
        # type() and not isinstance(): lazy proxies answer isinstance() by loading what they stand for.
        kind = type(found)
        with contextlib.suppress(Exception):  # nobody is left to be told
            if issubclass(kind, tempfile.TemporaryDirectory) and getattr(found, "_delete", True):
                found.cleanup()
            elif issubclass(kind, _BaseDataLoaderIter):  # torchdata's is of no other class of torch's
                found._shutdown_workers()
