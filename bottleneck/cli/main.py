"""The command `bottleneck`: its group of commands, `doctor`, and the conversion of errors to exit statuses."""

from __future__ import annotations

import atexit
import errno
import importlib
import os
import signal
import sys
import textwrap
import traceback
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from bottleneck._pydata import VERSION
from bottleneck.cli.options import Command, traceback_option
from bottleneck.cli.output import discard, prepare_streams, say, standard_output, standard_output_kept
from bottleneck.errors import BottleneckError, ExitStatus, MeasurementError, UsageError, nearest
from bottleneck.job.users_code import without_libraries
from bottleneck.job.world import world_size
from bottleneck.measure.keep.interrupts import REQUESTS, ending
from bottleneck.results.files import reason

if TYPE_CHECKING:
    from bottleneck.doctor import Finding

COMMANDS = {
    "run": ("bottleneck.cli.measure:run_command", "Find the bottleneck of a training script, without changing it."),
    "diagnose": (
        "bottleneck.cli.measure:diagnose_command",
        "Find the bottleneck of a training job that a function describes.",
    ),
    "tune": (
        "bottleneck.cli.tune:tune_command",
        "Try the known fixes on a training job, and keep those that clearly help.",
    ),
    "attach": ("bottleneck.cli.attach:attach_command", "Watch a running training job, and say if it waits for data."),
    "monitor": (
        "bottleneck.cli.monitor:monitor_command",
        "Watch the whole run of a training script: waits, slow batches, epochs, checkpoints.",
    ),
    "report": ("bottleneck.cli.saved:report_command", "Turn a saved result into a report."),
    "compare": ("bottleneck.cli.saved:compare_command", "Compare saved results."),
    "plan": ("bottleneck.cli.saved:plan_command", "Find the machine that a job needs, from its saved results."),
    "doctor": ("bottleneck.cli.main:doctor_command", "Check that this machine is ready for measuring."),
    "demo": ("bottleneck.cli.measure:demo_command", "Diagnose a small job on synthetic photographs."),
}
"""Module and summary of each command, known without importing any of them."""

_exit = os._exit
"""The original function, because `run` replaces it while a script is diagnosed."""


class LazyGroup(click.Group):
    """A group that imports commands when they are called, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in the order in which people need them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Return the command of that name; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command and its arguments; refuse an unknown name with the command that is probably meant."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            file, _, function = name.rpartition(":")  # a target or a script without a command, or a typo
            meant = f"diagnose {name}" if file and function else f"run {name}" if name.endswith(".py") else None
            meant = meant or nearest(name, COMMANDS)
            if meant is not None:
                ctx.fail(f"No such command {name!r}. Did you mean 'bottleneck {meant}'?")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands of the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.command(
    cls=LazyGroup,
    name="bottleneck",
    subcommand_metavar="COMMAND [ARGS]...",
    invoke_without_command=True,  # versions of click differ on whether this is an error
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 measured, 1 a gate failed, 2 wrong usage, 3 the job could not be measured, "
    "4 a bug in bottleneck, 130 interrupted.",
)
@click.version_option(VERSION, "-V", "--version", prog_name="bottleneck")
@traceback_option
@click.pass_context
def cli(context: click.Context) -> int:
    """Find out why your GPU waits for data, and how much faster training gets if you fix it."""
    try:
        os.getcwd()
    except OSError as error:  # the folder was removed: relative paths have no meaning, and torch cannot be loaded
        raise UsageError(
            f"The working directory cannot be used: {reason(error)}.", "Change to a folder that exists."
        ) from error
    if context.invoked_subcommand is None:
        say(context.get_help())
    return ExitStatus.USAGE  # without a command; a command returns its own status


@click.command(
    "doctor",
    cls=Command,
    context_settings={"allow_extra_args": True},
    epilog="Exit status: 3 if a problem makes measuring impossible, otherwise 0.",
)
@traceback_option
@click.pass_context
def doctor_command(context: click.Context) -> int:
    """Check that this machine is ready for measuring."""
    if context.args:
        raise UsageError(
            f"doctor takes no target. Check it by a run of `bottleneck diagnose {context.args[0]} --quick`."
        )
    from bottleneck.doctor import examine_machine

    with standard_output_kept():
        findings = examine_machine()
    with standard_output() as stream:
        stream.write(render_findings(findings))
    failed = any(finding.status == "problem" for finding in findings.values())
    return ExitStatus.COULD_NOT_MEASURE if failed else ExitStatus.OK


def render_findings(findings: Mapping[str, Finding]) -> str:
    """Return each finding as a paragraph of 80 columns, with its remedy below."""
    from bottleneck.reports import sanitize

    marks = {"ok": "ok     ", "warning": "warning", "problem": "PROBLEM"}
    width = max(map(len, findings))
    lines = []
    for subject, finding in findings.items():
        remedy = " " * (9 + width) + "  -> "
        for text, start in (
            (finding.message, f"{marks[finding.status]}  {subject:<{width}}  "),
            (finding.remedy, remedy),
        ):
            # Messages of packages may contain anything. Commands are not broken at hyphens.
            lines += textwrap.wrap(
                sanitize.one_line(text or ""),
                80,
                initial_indent=start,
                subsequent_indent=" " * len(start),
                break_on_hyphens=False,
            )
    return "\n".join(lines) + "\n"


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit status; errors become messages on standard error."""
    try:
        # Not cli.main(), which would convert an interruption to its own exception.
        with cli.make_context("bottleneck", list(arguments)) as context:
            return int(cli.invoke(context) or 0)
    except BaseException as error:  # noqa: BLE001 - the one boundary
        return exit_status_of(error, show_traceback="--traceback" in arguments)


def main() -> NoReturn:
    """Run the console script."""
    prepare_streams()
    end_in_order()
    status = flushed(run(sys.argv[1:]))
    if world_size() > 1:
        # Gloo's threads may hold tensors, and abort the process if the interpreter frees them at its end (see
        # pytorch/pytorch#179291): a launcher would think that the diagnosis failed.
        leave(status)
    if status == ExitStatus.INTERRUPTED:
        atexit._run_exitfuncs()  # registered by others; this skips the unloading of torch, which takes seconds if cores
        leave(flushed(status))  # are busy
    sys.exit(status)


def end_in_order() -> None:
    """Let a request to end the process (by a scheduler, or a closed terminal) end a diagnosis as Ctrl-C does.

    Requests that the process ignores, as under nohup, are still ignored.
    """
    owner = os.getpid()

    def interrupt(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:  # a process forked by the user's code ends as it would have
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if not ending.is_set():
            raise KeyboardInterrupt

    for number in REQUESTS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)


def exit_status_of(error: BaseException, *, show_traceback: bool = False) -> int:
    """Report an error on standard error.

    Args:
        error: Cause of the command's end, which includes exits requested by click.
        show_traceback: Print the whole traceback; otherwise only frames of the user's code, if that raised.

    Returns:
        The exit status of the process.
    """
    if isinstance(error, click.exceptions.Exit):
        return int(error.exit_code)
    if isinstance(error, BrokenPipeError):  # the reader of our output has seen enough
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
    """End the process at once, without anything that runs at the end of the interpreter."""
    if sys.stderr is not None:
        sys.stderr.flush()
    _exit(status)


def flushed(status: int) -> int:
    """Flush standard output.

    Returns:
        The status, or that of wrong usage if the command succeeded but its output cannot be written.
    """
    try:
        if sys.stdout is not None:  # None in a process started without it
            sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        if status == ExitStatus.OK:
            return exit_status_of(error)  # a broken pipe is not a failure
    except ValueError:  # closed by now
        pass
    return status


def interruption_in(error: BaseException) -> BaseException:
    """Return the interruption that caused an error; without one, the error.

    Python turns Ctrl-C into a RuntimeError in a class definition, and libraries turn it into an ImportError while they
    load.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause or error


def _describe(error: BaseException) -> tuple[str, ExitStatus]:
    error = error if isinstance(error, BottleneckError) else interruption_in(error)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return one_line(f"Interrupted. {error}").rstrip(), ExitStatus.INTERRUPTED
    if isinstance(error, BottleneckError):
        return f"Error: {one_line(str(error))}", error.exit_status
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        help_hint = f" Try '{context.command_path} --help'." if context is not None else ""
        return f"Error: {_sentence(error.format_message())}{help_hint}", ExitStatus.USAGE
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "Error: No space is left on the device that is written to. Free some space.", ExitStatus.USAGE
    if isinstance(error, SystemExit):
        said = f"Error: The job's own code ended the process (SystemExit: {one_line(str(error.code))}). "
        return f"{said}Let it raise an exception instead.", ExitStatus.COULD_NOT_MEASURE
    return (
        f"Error: {_sentence(f'{type(error).__name__}: {error}'.rstrip(': '))} This is a bug in bottleneck: "
        "please report it, with the output of the same command with --traceback.",
        ExitStatus.INTERNAL,
    )


def one_line(text: str) -> str:
    """Return text on one line, without terminal control characters: it may quote a file or the user's code."""
    from bottleneck.reports import sanitize  # only needed for errors

    return sanitize.one_line(text)


def _sentence(text: str) -> str:
    text = one_line(text)
    return text if text.endswith((".", "?", "!")) else f"{text}."
