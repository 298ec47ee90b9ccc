"""Options shared by several commands, the parsers of their texts, and help in groups with examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from bottleneck.cli.output import plan_outputs
from bottleneck.errors import UsageError
from bottleneck.job.target import parse_duration, parse_size
from bottleneck.measure.options import MAX_SEED, MeasureOptions, ProfileOptions
from bottleneck.results.files import make_folder

Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")
Callback = Callable[[click.Context, click.Parameter, str | None], Value | None]

_TRACEBACK = "bottleneck.traceback"
_GROUPS = {
    "Changes": ("--try", "--skip", "--safe"),
    "Job": ("--set", "--device", "-m", "--loader", "--skip-steps", "--seed", "--images"),
    "Time and memory": ("--budget", "--seconds", "--seconds", "--quick", "--step-timeout", "--cache-bytes"),
    "Output": (
        "--json",
        "--markdown",
        "--html",
        "--out",
        "--patch",
        "--verbose",
        "--report",
        "--format",
        "--output",
        "--base",
        "--force",
        "--link-prefix",
        "--github-summary",
        "--gpu-hour-price",
        "--core-hour-price",
    ),
    "Machine": ("--gpus", "--cores", "--device-speed", "--storage"),
    "Profiling": ("--cold", "--flamegraph", "--native", "--idle", "--rate", "--trace"),
    "Gates": ("--fail-under", "--fail-on-regression"),
    "Other": ("--traceback", "--help"),
}
GROUP_OF = {option: group for group, options in _GROUPS.items() for option in options}
"""Group of an option by its long name; other options come last."""
GONE = {"--card": "--card is gone: the page that --html writes begins with the answer."}
"""Messages for options of earlier versions."""

EXAMPLES = {
    "run": (
        "bottleneck run train.py --epochs 1",
        "bottleneck run --html report.html -m package.train --config base.yaml",
    ),
    "diagnose": (
        "bottleneck diagnose train.py:build",
        "bottleneck diagnose train.py:build --quick --set num_workers=8",
        "bottleneck diagnose train.py:build --html report.html --json result.json",
        "bottleneck diagnose package.train:build --flamegraph profiles --fail-under 90%",
    ),
    "tune": (
        "bottleneck tune train.py --epochs 1",
        "bottleneck tune --patch tuned.diff -m package.train",
        "bottleneck tune train.py:build",
        "bottleneck tune train.py:build --try num_workers --try prefetch_factor --budget 2m",
        "bottleneck tune train.py:build --safe --markdown tuning.md",
    ),
    "attach": (
        "bottleneck attach 4711",
        "bottleneck attach 4711 --seconds 60 --html report.html",
    ),
    "monitor": (
        "bottleneck monitor train.py --epochs 90",
        "bottleneck monitor --out run7.jsonl -m package.train",
    ),
    "report": (
        "bottleneck report result.json",
        "bottleneck report result.json --format html -o report.html",
        "bottleneck report head.json --format markdown --base base.json",
        "bottleneck report events.jsonl",
    ),
    "compare": (
        "bottleneck compare base.json head.json",
        "bottleneck compare base.json head.json --fail-on-regression 5%",
    ),
    "plan": (
        "bottleneck plan result.json --gpus 8 --cores 96",
        "bottleneck plan two-workers.json eight-workers.json --device-speed 2.5 --storage 2GB/s --format html",
    ),
    "doctor": ("bottleneck doctor",),
    "demo": ("bottleneck demo", "bottleneck demo --budget 20s"),
}


class Command(click.Command):
    """A command whose help has groups of options, and examples at the end."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; explain options that no longer exist."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name in GONE:
                raise click.UsageError(GONE[error.option_name], ctx) from None
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group of which this command has options."""
        groups: dict[str, list[tuple[str, str]]] = {group: [] for group in _GROUPS}
        for option in self.get_params(ctx):
            shown = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if shown is not None:
                groups[GROUP_OF.get(max(option.opts, key=len), "Other")].append(shown)
        for group, rows in groups.items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the remaining text."""
        with formatter.section("Examples"):
            formatter.write_text("\b\n" + "\n".join(EXAMPLES[self.name or ""]))
        super().format_epilog(ctx, formatter)


def _parsed_by(parse: Callable[[str], Value]) -> Callback[Value]:
    """Return the callback of an option whose text is parsed by a function that raises UsageError."""

    def callback(context: click.Context, parameter: click.Parameter, text: str | None) -> Value | None:
        if text is None:
            return None
        try:
            return parse(text)
        except UsageError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return callback


def _number(wanted: str, example: str, is_good: Callable[[float], bool], *, percent: bool = True) -> Callback[float]:
    """Return the callback of an option that is a number, with or without a percent sign."""

    def parse(text: str) -> float:
        stripped = text.strip()
        try:
            number = float(stripped[:-1]) / 100 if percent and stripped.endswith("%") else float(stripped)
        except ValueError:
            number = math.nan
        if not is_good(number):
            raise UsageError(f"{text!r:.40} is not {wanted}.", f"Write for example {example}.")
        return number

    return _parsed_by(parse)


as_seconds = _parsed_by(parse_duration)
"""Callback for '90s', '2m' or '1m30s'."""
as_loss = _number("a share between 0 and 1", "0.05 or 5%", lambda share: 0 <= share < 1)
"""Callback for a share from 0 to below 1, as '0.05' or '5%'."""


def as_names(_context: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> tuple[str, ...]:
    """Return names from texts, each of which may have several separated by commas.

    Raises:
        click.BadParameter: Texts are given that contain no name.
    """
    names = tuple(name.strip() for text in texts for name in text.split(",") if name.strip())
    if texts and not names:
        raise click.BadParameter("it contains no name.")
    return names


def _remember_traceback(context: click.Context, _: click.Parameter, asked: bool) -> None:
    context.meta[_TRACEBACK] = asked or context.meta.get(_TRACEBACK, False)


def traceback_is_asked_for() -> bool:
    """Return True if the present command has `--traceback`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_TRACEBACK))


# The handler of all errors searches the arguments for it.
traceback_option = click.option(
    "--traceback",
    is_flag=True,
    expose_value=False,
    callback=_remember_traceback,
    help="Show the full traceback of an error.",
)
as_cores = _number("a number from 0.01 to 10,000,000", "96", lambda cores: 0.01 <= cores <= 1e7, percent=False)
as_speed = _number("a factor from 0.001 to 1000", "2.5", lambda factor: 1e-3 <= factor <= 1e3, percent=False)
as_bytes_per_s = _parsed_by(lambda text: parse_size(text.strip().removesuffix("/s")))
"""Callback for '2GB/s'."""
verbose_option = click.option("--verbose", is_flag=True, help="Print all tables, and the intervals of all numbers.")
as_price = _number("a price above zero and below a billion", "2.5", lambda price: 0 < price < 1e9, percent=False)
price_option = click.option(
    "--gpu-hour-price",
    callback=as_price,
    metavar="PRICE",
    help="Report what waiting costs per GPU hour, such as 2.5.",
)


def _all_of(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Return a decorator that adds options to a command, in this order."""

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


report_options = _all_of(
    click.option("--json", metavar="FILE", help="Write the result, for report and compare."),
    click.option("--markdown", metavar="FILE", help="Write a report for a pull request."),
    click.option("--html", metavar="FILE", help="Write a report as a web page."),
)
measuring_options = _all_of(
    click.option(
        "--seed",
        type=click.IntRange(0, MAX_SEED),
        metavar="N",
        default=0,
        show_default=True,
        help="Random seed, also for the job.",
    ),
    click.option("--budget", callback=as_seconds, metavar="TIME", help="Maximum duration: 90s, 2m, 1m30s."),
    click.option("--quick", is_flag=True, help="About 20 seconds, with wider intervals."),
    click.option(
        "--cache-bytes",
        callback=_parsed_by(parse_size),
        metavar="SIZE",
        help="Memory for cached batches: 8GiB, 500MB.",
    ),
    report_options,
    click.option("--cold", is_flag=True, help="Also measure with the files dropped from memory."),
    click.option("--flamegraph", metavar="DIR", help="Write flamegraphs of the workers' code to this folder."),
    click.option("--native", is_flag=True, help="Show C and C++ frames in flamegraphs."),
    click.option("--idle", is_flag=True, help="Include waiting threads in flamegraphs."),
    click.option(
        "--rate", type=click.IntRange(1, 1000), metavar="HZ", help="Sampling rate of flamegraphs, 100 by default."
    ),
    click.option("--trace", metavar="DIR", help="Write traces of a few steps to this folder, for Perfetto."),
    click.option(
        "--fail-under",
        callback=_number("a share between 0 and 1", "0.9 or 90%", lambda share: 0 < share <= 1),
        metavar="SHARE",
        help="Exit 1 if the efficiency is below this: 0.9 or 90%.",
    ),
    price_option,
    verbose_option,
    traceback_option,
)
"""Decorator that adds the options that `Request.of` takes."""
script_options = _all_of(
    click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module, as after python -m."),
    click.option(
        "--loader",
        metavar="NAME",
        help="DataLoader to measure, if several feed the loop: its number, or the class of its dataset.",
    ),
    click.option(
        "--skip-steps",
        type=click.IntRange(1),
        metavar="N",
        help="Training steps before measuring starts.  [default: 3]",
    ),
    click.option(
        "--step-timeout",
        callback=as_seconds,
        default="5m",
        show_default=True,
        metavar="TIME",
        help="Give up if the loop requests no batch for this long.",
    ),
)
"""Decorator that adds the options of a command that measures inside a script."""


@dataclass(frozen=True)
class Request:
    """Request of `diagnose` or `run`: how to measure, and what to do with the result."""

    options: MeasureOptions
    outputs: Mapping[str, str]
    flamegraph: str | None = None
    trace: str | None = None
    fail_under: float | None = None
    gpu_hour_price: float | None = None
    verbose: bool = False

    @classmethod
    def of(cls, source: str, asked: Mapping[str, Any]) -> Request:
        """Check the options before any time is spent on measuring.

        Args:
            source: File of the job, which no report may replace.
            asked: Values of `measuring_options`.

        Raises:
            UsageError: An output cannot be written, or options contradict each other.
        """
        profile = {name: asked[name] for name in ("native", "idle", "rate") if asked[name]}
        if profile and asked["flamegraph"] is None:
            raise UsageError(f"--{min(profile)} needs flamegraphs, which were not requested.", "Add --flamegraph DIR.")
        for name in ("flamegraph", "trace"):
            if asked[name] is not None:
                make_folder(asked[name], f"{name}s")
        # After the folders, so that a report at the place of a folder is refused.
        outputs = plan_outputs({name: asked[name] for name in ("json", "markdown", "html")}, source)
        if "rate" in profile:
            profile["rate_hz"] = profile.pop("rate")
        options = MeasureOptions(
            budget_s=asked["budget"],
            quick=asked["quick"],
            seed=asked["seed"],
            cache_budget_bytes=asked["cache_bytes"],
            profile=None if asked["flamegraph"] is None else ProfileOptions(**profile),
            trace=asked["trace"] is not None,
            cold=asked["cold"],
        )
        others = ("flamegraph", "trace", "fail_under", "gpu_hour_price", "verbose")
        return cls(options, outputs, **{name: asked[name] for name in others})
