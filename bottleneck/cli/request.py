"""What `diagnose` and `run` are both asked for: how long, which reports, which profiles, which gate."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bottleneck.analysis.price import with_price
from bottleneck.cli.measuring import write_attempt
from bottleneck.cli.options import (
    as_bytes,
    as_seconds,
    as_share,
    price_option,
    traceback_option,
    verbose_option,
)
from bottleneck.cli.outputs import plan_outputs
from bottleneck.cli.printing import say
from bottleneck.errors import ExitStatus, UsageError
from bottleneck.measure.options import MAX_SEED, MeasureOptions, ProfileOptions
from bottleneck.results.files import check_folder
from bottleneck.results.records import Result

if TYPE_CHECKING:
    from bottleneck.api import Attempt

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--seed",
        type=click.IntRange(0, MAX_SEED),
        metavar="N",
        default=0,
        show_default=True,
        help="Random seed, of the job too.",
    ),
    click.option("--budget", callback=as_seconds, metavar="TIME", help="How long it may take: 90s, 2m, 1m30s."),
    click.option("--quick", is_flag=True, help="About 20 seconds, with wider intervals."),
    click.option("--cache-bytes", callback=as_bytes, metavar="SIZE", help="Memory for cached batches: 8GiB, 500MB."),
    click.option("--json", metavar="FILE", help="Write the result, for report and compare."),
    click.option("--markdown", metavar="FILE", help="Write a report for a pull request."),
    click.option("--html", metavar="FILE", help="Write a report as a web page."),
    click.option("--cold", is_flag=True, help="Measure also with the files dropped from memory."),
    click.option("--flamegraph", metavar="DIR", help="Write flamegraphs of the workers' code there."),
    click.option("--native", is_flag=True, help="Show C and C++ frames in flamegraphs."),
    click.option("--idle", is_flag=True, help="Show threads that wait, too, in flamegraphs."),
    click.option(
        "--rate", type=click.IntRange(1, 1000), metavar="HZ", help="Sampling rate of flamegraphs, 100 by default."
    ),
    click.option("--trace", metavar="DIR", help="Write traces of a few steps there, for Perfetto."),
    click.option(
        "--fail-under",
        callback=as_share,
        metavar="SHARE",
        help="Exit 1 if the efficiency is below this: 0.9 or 90%.",
    ),
    price_option,
    verbose_option,
    traceback_option,
)


def measuring_options(function: Function) -> Function:
    """Add the options that `Request.of` takes."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True)
class Request:
    """What to measure with, and what to do with the result."""

    options: MeasureOptions
    outputs: Mapping[str, str]
    flamegraph: str | None
    trace: str | None
    fail_under: float | None
    gpu_hour_price: float | None
    verbose: bool

    @classmethod
    def of(  # noqa: PLR0913 - the options of the contract
        cls,
        *,
        seed: int,
        budget: float | None,
        quick: bool,
        cache_bytes: int | None,
        json: str | None,
        markdown: str | None,
        html: str | None,
        cold: bool,
        flamegraph: str | None,
        native: bool,
        idle: bool,
        rate: int | None,
        trace: str | None,
        fail_under: float | None,
        gpu_hour_price: float | None,
        verbose: bool,
    ) -> Request:
        """Check what was asked for, before any time is spent on measuring.

        Raises:
            UsageError: Something that cannot be written, or that contradicts itself.
        """
        outputs = plan_outputs({"json": json, "markdown": markdown, "html": html})
        profile = _profile_options(flamegraph, native=native, idle=idle, rate=rate)
        if trace is not None:
            check_folder(trace, "traces")
        _refuse_file_as_folder(outputs, {"--flamegraph": flamegraph, "--trace": trace})
        options = MeasureOptions(
            budget_s=budget, quick=quick, seed=seed, cache_budget_bytes=cache_bytes, profile=profile,
            trace=trace is not None, cold=cold,
        )  # fmt: skip
        return cls(options, outputs, flamegraph, trace, fail_under, gpu_hour_price, verbose)

    def answer(self, attempt: Attempt) -> int:
        """Write the reports, judge the gate, and return the exit status.

        Raises:
            MeasurementError: The job failed; what was measured until then has been written.
        """
        if not attempt.leads:
            if attempt.failure is not None:
                raise attempt.failure
            return ExitStatus.OK
        if self.gpu_hour_price is not None:
            attempt = replace(attempt, diagnosis=with_price(attempt.diagnosis, self.gpu_hour_price))
        write_attempt(attempt, self.outputs, flamegraph=self.flamegraph, trace=self.trace, verbose=self.verbose)
        return ExitStatus.OK if self.fail_under is None else _gate(attempt.diagnosis, self.fail_under)


def _refuse_file_as_folder(outputs: Mapping[str, str], folders: Mapping[str, str | None]) -> None:
    """Refuse a report in the place of a folder that is to be made, or on the way to it."""
    for option, folder in folders.items():
        for format, path in outputs.items():
            if folder is not None and Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(path)):
                raise UsageError(f"--{format} and {option} both go to {path}.", "Give them two different places.")


def _profile_options(folder: str | None, *, native: bool, idle: bool, rate: int | None) -> ProfileOptions | None:
    """How to profile; None: not at all. A folder that cannot be written is refused before any time is spent."""
    if folder is None:
        given = {"--native": native, "--idle": idle, "--rate": rate is not None}
        alone = [name for name, there in given.items() if there]
        if alone:
            raise UsageError(f"{alone[0]} is for flamegraphs, which were not asked for.", "Add --flamegraph DIR.")
        return None
    check_folder(folder)
    options = ProfileOptions(native=native, idle=idle)
    return options if rate is None else replace(options, rate_hz=rate)


def _gate(result: Result, fail_under: float) -> int:
    """Return the exit status of `--fail-under`, and say on standard error why it failed."""
    efficiency = result.verdict.judged
    if efficiency is None:
        say(f"The gate of {100 * fail_under:g} % cannot be judged: the efficiency is unknown.")
        return ExitStatus.OK
    if efficiency.high < fail_under:
        over = " over a whole epoch" if result.verdict.judged_by == "epoch_efficiency" else ""
        say(
            f"Gate failed: the efficiency{over} is {100 * efficiency.estimate:.1f} % and at most "
            f"{100 * efficiency.high:.1f} %, below the {100 * fail_under:g} % that --fail-under asks for."
        )
        return ExitStatus.GATE_FAILED
    return ExitStatus.OK
