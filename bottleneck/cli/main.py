"""The command `bottleneck`: its group of commands, and the one place that ends the process."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from bottleneck._pydata.names import VERSION, share_public_names
from bottleneck.cli.boundary import exit_status_of, flushed
from bottleneck.cli.options import traceback_option
from bottleneck.cli.printing import prepare_streams, say
from bottleneck.cli.termination import end_in_order
from bottleneck.errors import ExitStatus, UsageError
from bottleneck.results.files import reason

COMMANDS = {
    "run": ("bottleneck.cli.run:run_command", "Find what holds a training script back, without a change to it."),
    "diagnose": ("bottleneck.cli.diagnose:diagnose_command", "Find what holds a training job back."),
    "report": ("bottleneck.cli.report:report_command", "Turn a saved result into a report."),
    "compare": ("bottleneck.cli.compare:compare_command", "Say what changed between saved results."),
    "doctor": ("bottleneck.cli.doctor:doctor_command", "Say what in this environment hinders measuring."),
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
    """Finds what holds a PyTorch training job below the speed of its device, and proves it by measurement."""
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
    # The imported `bottleneck` is pydata's when that was installed after ours.
    share_public_names(sys.modules["bottleneck"])
    sys.exit(flushed(run(sys.argv[1:])))
