"""The command `bottleneck`: its group of commands, `doctor`, and the one place that makes exit statuses of errors."""

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
        "Try the known fixes on a training job, and keep those that surely help.",
    ),
    "report": ("bottleneck.cli.saved:report_command", "Turn a saved result into a report."),
    "compare": ("bottleneck.cli.saved:compare_command", "Compare saved results."),
    "plan": ("bottleneck.cli.saved:plan_command", "Say what machine a job needs, by its saved results."),
    "doctor": ("bottleneck.cli.main:doctor_command", "Check that this machine is ready to be measured."),
    "demo": ("bottleneck.cli.measure:demo_command", "Diagnose a small job on made-up photographs."),
}
"""Where each command is, and what it does: known without importing any of them."""

_exit = os._exit
"""Taken here, since `run` replaces it while a script is diagnosed."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, not when their names are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names of the commands, in the order in which people need them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The command of that name; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command and its arguments. An unknown name is refused with the command that is probably meant."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            file, _, function = name.rpartition(":")  # a target or a script without a command, or a slip
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
        """The commands in the help, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.command(
    cls=LazyGroup,
    name="bottleneck",
    subcommand_metavar="COMMAND [ARGS]...",
    invoke_without_command=True,  # whether click takes that for an error depends on its version
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 measured, 1 a gate failed, 2 wrong usage, 3 the job could not be measured, "
    "4 a fault of bottleneck, 130 interrupted.",
)
@click.version_option(VERSION, "-V", "--version", prog_name="bottleneck")
@traceback_option
@click.pass_context
def cli(context: click.Context) -> int:
    """Find out why your GPU waits for data, and how much faster training gets if you fix it."""
    try:
        os.getcwd()
    except OSError as error:  # it was removed: no path means anything there, and torch does not load
        raise UsageError(
            f"The working directory cannot be used: {reason(error)}.", "Change to a folder that is there."
        ) from error
    if context.invoked_subcommand is None:
        say(context.get_help())
    return ExitStatus.USAGE  # that of no command; a command has one of its own


@click.command(
    "doctor",
    cls=Command,
    context_settings={"allow_extra_args": True},
    epilog="Exit status: 3 if a problem makes measuring impossible, else 0.",
)
@traceback_option
@click.pass_context
def doctor_command(context: click.Context) -> int:
    """Check that this machine is ready to be measured."""
    if context.args:
        raise UsageError(
            f"doctor takes no target: check it by a run of `bottleneck diagnose {context.args[0]} --quick`."
        )
    from bottleneck.doctor import examine_machine

    with standard_output_kept():
        findings = examine_machine()
    with standard_output() as stream:
        stream.write(render_findings(findings))
    failed = any(finding.status == "problem" for finding in findings.values())
    return ExitStatus.COULD_NOT_MEASURE if failed else ExitStatus.OK


def render_findings(findings: Mapping[str, Finding]) -> str:
    """Each finding as a paragraph of 80 columns, with its remedy below."""
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
            # What a package says may hold anything. A command is not broken at its hyphens.
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
        # Not cli.main(): it would turn an interruption into an exception of its own.
        with cli.make_context("bottleneck", list(arguments)) as context:
            return int(cli.invoke(context) or 0)
    except BaseException as error:  # noqa: BLE001 - the one boundary
        return exit_status_of(error, show_traceback="--traceback" in arguments)


def main() -> NoReturn:
    """The console script."""
    prepare_streams()
    end_in_order()
    status = flushed(run(sys.argv[1:]))
    if world_size() > 1:
        # Gloo's threads may hold tensors, and abort the process where the interpreter frees them at its end, as
        # pytorch/pytorch#179291 reports: a launcher would take the diagnosis for a failure.
        leave(status)
    if status == ExitStatus.INTERRUPTED:
        atexit._run_exitfuncs()  # what others registered; what is left out is that torch unloads, for seconds where
        leave(flushed(status))  # the cores are busy, while somebody waits
    sys.exit(status)


def end_in_order() -> None:
    """Let a request to end the process (a scheduler's, a closed terminal's) end a diagnosis as Ctrl-C does.

    Not where the process ignores it, as under nohup.
    """
    owner = os.getpid()

    def interrupt(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:  # a process that the user's code forked: it ends as it would have
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if not ending.is_set():
            raise KeyboardInterrupt

    for number in REQUESTS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)


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
    except OSError as error:
        discard(sys.stdout)
        if status == ExitStatus.OK:
            return exit_status_of(error)  # a broken pipe is no failure
    except ValueError:  # closed by now
        pass
    return status


def interruption_in(error: BaseException) -> BaseException:
    """Return the interruption that an error was made of; without one, the error.

    Python makes a RuntimeError of Ctrl-C where a class is defined, and libraries make an ImportError while they load.
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
        return "Error: No space is left where something was to be written. Make room there.", ExitStatus.USAGE
    if isinstance(error, SystemExit):
        said = f"Error: The job's own code ended the process (SystemExit: {one_line(str(error.code))}). "
        return f"{said}Let it raise an exception instead.", ExitStatus.COULD_NOT_MEASURE
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
