"""`bottleneck tune`, for a job that a function describes, or for a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from bottleneck.analysis.edits.patch import patch_of
from bottleneck.cli.measure import measure_described, measure_script, require_torch, source_of, with_source
from bottleneck.cli.options import (
    Command,
    as_names,
    as_seconds,
    report_options,
    script_options,
    traceback_option,
    verbose_option,
)
from bottleneck.cli.output import STANDARD_OUTPUT, plan_outputs, say, write_outputs, write_rendered
from bottleneck.errors import ExitStatus, UsageError
from bottleneck.job.target import build_pipeline, check_target
from bottleneck.results.files import read_source
from bottleneck.results.tuning import TuningResult
from bottleneck.script.launch import Script

if TYPE_CHECKING:
    from bottleneck.tuner.tune import TuningAttempt


class _Tune(Command):
    """A command that leaves arguments after a script to the script, as `run` does; options may follow a target."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        ctx.allow_interspersed_args = False
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        named = given.get("arguments")
        is_script = isinstance(named, tuple) and _is_script(named, given.get("is_module") is True)
        ctx.allow_interspersed_args = not is_script
        return super().parse_args(ctx, args)


def _is_script(arguments: Sequence[str], is_module: bool) -> bool:
    return is_module or bool(arguments and arguments[0].endswith(".py") and ":" not in arguments[0])


@click.command(
    "tune",
    cls=_Tune,
    epilog="Options of bottleneck come before SCRIPT; what follows belongs to the script. With '-' for FILE, standard "
    "output contains that file and nothing else.",
)
@script_options
@click.option(
    "--try",
    "tried",
    metavar="NAME",
    multiple=True,
    callback=as_names,
    help="Try only this change, or several separated by commas; may be repeated.",
)
@click.option(
    "--skip",
    metavar="NAME",
    multiple=True,
    callback=as_names,
    help="Do not try this change, or several separated by commas; may be repeated.",
)
@click.option("--safe", is_flag=True, help="Leave out changes that alter what is learned, such as a larger batch.")
@click.option(
    "--budget", callback=as_seconds, metavar="TIME", default="5m", show_default=True, help="Maximum duration."
)
@click.option(
    "--seconds",
    callback=as_seconds,
    metavar="TIME",
    help="With --try num_workers only: find the number of workers within this time, without a diagnosis.",
)
@report_options
@click.option("--patch", metavar="FILE", help="Write the kept changes as a diff of the source, for git apply.")
@verbose_option
@traceback_option
@click.argument("arguments", metavar="TARGET | SCRIPT [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def tune_command(  # noqa: PLR0913, PLR0917 - the options of the contract
    is_module: bool,
    loader: str | None,
    skip_steps: int | None,
    step_timeout: float,
    tried: tuple[str, ...],
    skip: tuple[str, ...],
    safe: bool,
    budget: float,
    seconds: float | None,
    json: str | None,
    markdown: str | None,
    html: str | None,
    patch: str | None,
    verbose: bool,
    arguments: tuple[str, ...],
) -> int:
    """Try the known fixes on a training job, keep those that clearly help, and print the changed lines.

    SCRIPT is path/to/train.py, or a module after -m. It runs with its own arguments, and its loop is fed by variants of
    its own loader; code after the training loop does not run.

    TARGET is path/to/file.py:function or package.module:function. The function takes no arguments and returns a
    bottleneck.Pipeline.
    """
    if not arguments:
        raise UsageError("No script or target is given.", "Write bottleneck tune path/to/train.py ARGS.")
    name, *rest = arguments
    script = Script(name, rest, is_module) if _is_script(arguments, is_module) else None
    if script is not None:
        script.check()
    elif rest:
        raise UsageError(f"A target takes no arguments, but got {rest[0]!r}.")
    else:
        check_target(name)
    if seconds is not None and tried != ("num_workers",):
        raise UsageError("--seconds is for the number of workers only.", "Add --try num_workers, and no other change.")
    if seconds is not None and patch is not None:
        raise UsageError("--patch needs the whole tuning, which finds the place of the loader.", "Leave out --seconds.")
    if patch == STANDARD_OUTPUT:
        raise UsageError("The patch must go to a file.", "Write --patch tuned.diff.")
    wanted = {"json": json, "markdown": markdown, "html": html, "patch": patch}
    outputs = plan_outputs(wanted, name.rpartition(":")[0] or name)
    outputs.pop("patch", None)
    source = source_of(name)

    def answer(attempt: TuningAttempt) -> int:
        try:
            is_known = attempt.tuning.before is not None or bool(attempt.tuning.ladder)
            if attempt.leads and (attempt.failure is None or is_known):
                found = attempt.tuning  # it states its source, as its two diagnoses do
                before, after = (each and with_source(each, source) for each in (found.before, found.after))
                found = replace(found, before=before, after=after)
                write_outputs(with_source(found, source), outputs, verbose=verbose)
                if patch is not None:
                    _write_patch(attempt.tuning, patch)
        finally:
            if attempt.failure is not None:
                raise attempt.failure
        return ExitStatus.OK

    require_torch()
    from bottleneck.tuner.changes import choose

    changes = choose(tried or None, skip, safe=safe)
    if script is None:
        from bottleneck.tuner.tune import attempt_tuning

        return answer(
            measure_described(
                partial(build_pipeline, name),
                partial(attempt_tuning, changes=changes, budget_s=budget, seconds=seconds),
            )
        )
    from bottleneck.tuner.script import TuningLoop

    return measure_script(
        script,
        lambda finish, progress: TuningLoop(changes, budget, finish, progress, skip_steps, loader, seconds),
        answer,
        step_timeout,
    )


def _write_patch(tuning: TuningResult, path: str) -> None:
    """Write the changed lines as a patch of the files where they were seen, and report the lines that are not in it.

    Raises:
        UsageError: It cannot be written.
    """
    made = patch_of(tuning, read_source)
    if made.text:
        write_rendered(made.text, path)
    elif not tuning.lines:
        say(f"No change was kept, so nothing was written to {path}.")
    for line in made.left:
        say(f"Not in the patch; change it by hand: {'; '.join(line.splitlines())}")
