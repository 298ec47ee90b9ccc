"""The one boundary where errors become messages and exit statuses."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import NoReturn

import click

from bottleneck.cli.printing import discard, say
from bottleneck.errors import BottleneckError, ExitStatus, MeasurementError
from bottleneck.job.users_code import without_libraries

_exit = os._exit
"""As it is while a script that is diagnosed has another in its place."""


def exit_status_of(error: BaseException, *, show_traceback: bool = False) -> int:
    """Say on standard error what went wrong.

    Args:
        error: Whatever ended the command, an exit that click asked for among them.
        show_traceback: Print the whole traceback; else, of what the user's code raised, the frames in it.

    Returns:
        The exit status of the process.
    """
    if isinstance(error, click.exceptions.Exit):
        return int(error.exit_code)
    if isinstance(error, BrokenPipeError):  # the reader of our output has had enough
        discard(sys.stdout)
        return ExitStatus.OK
    shown = "".join(traceback.format_exception(error)) if show_traceback else ""
    details = error.details.strip("\n") if isinstance(error, MeasurementError) else ""
    if not show_traceback:
        details = without_libraries(details)
    for text in (shown, "" if details and details in shown else details):
        if text:
            say(text.rstrip("\n"))
    message, status = _describe(error)
    say(message)
    return status


def leave(status: int) -> NoReturn:
    """End the process at once: nothing that waits for the end of the interpreter runs."""
    if sys.stderr is not None:
        sys.stderr.flush()
    _exit(status)


def flushed(status: int) -> int:
    """Write out what standard output still holds.

    Returns:
        The status, or that of wrong usage where the command went well and its output could not be written.
    """
    try:
        if sys.stdout is not None:  # as in a process that was started without one
            sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError as error:
        discard(sys.stdout)
        if status == ExitStatus.OK:
            return exit_status_of(error)
    except ValueError:  # closed meanwhile
        pass
    return status


def _describe(error: BaseException) -> tuple[str, ExitStatus]:
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return one_line(f"Interrupted. {error}").rstrip(), ExitStatus.INTERRUPTED
    if isinstance(error, BottleneckError):
        return f"Error: {one_line(str(error))}", error.exit_status
    if isinstance(error, click.UsageError):
        help_hint = f" Try '{error.ctx.command_path} --help'." if error.ctx is not None else ""
        return f"Error: {_sentence(error.format_message())}{help_hint}", ExitStatus.USAGE
    if isinstance(error, click.ClickException):
        return f"Error: {_sentence(error.format_message())}", ExitStatus.USAGE
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "Error: No space is left where something was to be written. Make room there.", ExitStatus.USAGE
    if isinstance(error, SystemExit):
        return (
            f"Error: The job's own code ended the process (SystemExit: {one_line(str(error.code))}). "
            "Let it raise an exception instead.",
            ExitStatus.COULD_NOT_MEASURE,
        )
    return (
        f"Error: {_sentence(f'{type(error).__name__}: {error}'.rstrip(': '))} This is a fault of bottleneck: "
        "please report it, with what the same command prints with --traceback.",
        ExitStatus.INTERNAL,
    )


def one_line(text: str) -> str:
    """The text on one line, without anything that a terminal would act on: it may quote a file or the user's code."""
    from bottleneck.reports import sanitize  # only where there is an error

    return sanitize.one_line(text)


def _sentence(text: str) -> str:
    text = one_line(text)
    return text if text.endswith((".", "?", "!")) else f"{text}."
