"""The command `bottleneck`: its group of commands, and the one place that ends the process."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from bottleneck._pydata import VERSION
from bottleneck.cli.boundary import exit_status_of, flushed, leave
from bottleneck.cli.options import traceback_option
from bottleneck.cli.printing import prepare_streams, say
from bottleneck.cli.termination import end_in_order
from bottleneck.errors import ExitStatus, UsageError
from bottleneck.job.world import world_size
from bottleneck.results.files import reason

COMMANDS = {
    "run": ("bottleneck.cli.run:run_command", "Find the bottleneck of a training script, without changing it."),
    "diagnose": (
        "bottleneck.cli.diagnose:diagnose_command",
        "Find the bottleneck of a training job that a function describes.",
    ),
    "tune": (
        "bottleneck.cli.tune:tune_command",
        "Try the known fixes on a training job, and keep those that surely help.",
    ),
    "report": ("bottleneck.cli.report:report_command", "Turn a saved result into a report."),
    "compare": ("bottleneck.cli.compare:compare_command", "Compare saved results."),
    "doctor": ("bottleneck.cli.doctor:doctor_command", "Check that this machine is ready to be measured."),
    "demo": ("bottleneck.cli.demo:demo_command", "Diagnose a small job on made-up photographs."),
}
"""Where each command is, and what it does: known without importing any of them."""


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
        meant = _meant(args[0])
        if meant is not None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean 'bottleneck {meant}'?")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """The commands in the help, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _meant(name: str) -> str | None:
    """What to write for a name that is no command: a target or a script without one, or a slip."""
    if name in COMMANDS or name.startswith("-"):
        return None
    file, _, function = name.rpartition(":")
    if file and function:
        return f"diagnose {name}"
    if name.endswith(".py"):
        return f"run {name}"
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    return near[0] if near else None


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
    _refuse_to_work_nowhere()
    if context.invoked_subcommand is None:
        say(context.get_help())
    return ExitStatus.USAGE  # that of no command; a command has one of its own


def _refuse_to_work_nowhere() -> None:
    """Refuse a working directory that was removed: no path means anything there, and torch does not load."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            f"The working directory cannot be used: {reason(error)}.", "Change to a folder that is there."
        ) from error


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
    sys.exit(status)
