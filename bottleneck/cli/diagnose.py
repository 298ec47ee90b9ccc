"""`bottleneck diagnose TARGET`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from bottleneck.cli.help import Command
from bottleneck.cli.job_source import current_commit, with_source
from bottleneck.cli.measuring import measure_job
from bottleneck.cli.outputs import refuse_to_replace
from bottleneck.cli.request import Request, measuring_options
from bottleneck.errors import PipelineError, UsageError
from bottleneck.job.target import check_target, parse_settings

if TYPE_CHECKING:
    from bottleneck.job.pipeline import Pipeline


@click.command(
    "diagnose",
    cls=Command,
    epilog="With '-' for FILE, standard output holds that file and nothing else.",
)
@click.argument("target")
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="Change a field of the pipeline; may be repeated."
)
@click.option("--device", metavar="DEVICE", help="Train on this device: cpu, cuda:1.")
@measuring_options
def diagnose_command(target: str, settings: tuple[str, ...], device: str | None, **asked: Any) -> int:
    """Find the bottleneck of a training job that a function describes.

    TARGET is path/to/file.py:function or package.module:function. The function takes no arguments and returns a
    bottleneck.Pipeline.
    """
    check_target(target)
    changes = parse_settings(settings)
    if device is not None:
        changes["device"] = device
    for path in filter(None, map(asked.get, ("json", "markdown", "html"))):
        refuse_to_replace(path, (target.rpartition(":")[0],), "the file of the target")
    request, commit = Request.of(**asked), current_commit()

    def build() -> Pipeline:
        from bottleneck.job.target import build_pipeline

        pipeline = build_pipeline(target)
        if device is not None:
            _check_device(device)
        return pipeline.replace(**changes) if changes else pipeline

    return request.answer(with_source(measure_job(build, request.options), target, commit))


def _check_device(name: str) -> None:
    """Refuse what `--device` cannot be, with what to write there rather than in Python."""
    from bottleneck.job.step import resolve_device

    try:
        resolve_device(name)
    except PipelineError as error:
        in_python = re.compile("device='([^']*)'")
        message, remedy = (in_python.sub(r"--device \1", text) for text in (error.message, error.remedy))
        raise UsageError(message, remedy) from error
