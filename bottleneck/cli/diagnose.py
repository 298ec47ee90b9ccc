"""`bottleneck diagnose TARGET`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bottleneck.cli.job_source import current_commit, with_source
from bottleneck.cli.measuring import measure_job
from bottleneck.cli.outputs import refuse_to_replace
from bottleneck.cli.request import Request, measuring_options
from bottleneck.job.settings import parse_settings

if TYPE_CHECKING:
    from bottleneck.job.description import Pipeline


@click.command("diagnose", epilog="'-' instead of FILE is standard output, which then holds nothing else.")
@click.argument("target")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Replace a Pipeline field; repeatable.")
@click.option("--device", metavar="DEVICE", help="Run on this device, such as cpu or cuda:1.")
@measuring_options
def diagnose_command(target: str, settings: tuple[str, ...], device: str | None, **asked: Any) -> int:
    """Find what holds a training job back.

    TARGET is package.module:function or path/to/file.py:function; the function takes no arguments and returns
    a bottleneck.Pipeline. The working directory is importable.
    """
    changes = parse_settings(settings)
    if device is not None:
        changes["device"] = device
    for path in filter(None, (asked["json"], asked["markdown"], asked["html"])):
        refuse_to_replace(path, (target.rpartition(":")[0],), "the file of the target")
    request, commit = Request.of(**asked), current_commit()

    def build() -> Pipeline:
        from bottleneck.job.target import build_pipeline

        pipeline = build_pipeline(target)
        return pipeline.replace(**changes) if changes else pipeline

    return request.answer(with_source(measure_job(build, request.options), target, commit))
