"""Help with options in groups and with examples: click lists them all in one."""

from __future__ import annotations

import click

_OTHER = "Other"
_GROUPS = {
    "Changes": ("--try", "--skip", "--safe"),
    "Job": ("--set", "--device", "-m", "--loader", "--skip-steps", "--seed", "--images"),
    "Time and memory": ("--budget", "--quick", "--step-timeout", "--cache-bytes"),
    "Output": (
        *("--json", "--markdown", "--html", "--verbose", "--report", "--format", "--output"),
        *("--base", "--force", "--link-prefix", "--github-summary", "--gpu-hour-price"),
    ),
    "Profiling": ("--cold", "--flamegraph", "--native", "--idle", "--rate", "--trace"),
    "Gates": ("--fail-under", "--fail-on-regression"),
    _OTHER: ("--traceback", "--help"),
}
GROUP_OF = {option: group for group, options in _GROUPS.items() for option in options}
"""By the long name of an option; what is in none comes with the others."""
GONE = {"--card": "--card is gone: the page that --html writes begins with the answer."}
"""What becomes of options of earlier versions."""

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
        "bottleneck tune train.py:build",
        "bottleneck tune train.py:build --try num_workers --try prefetch_factor --budget 2m",
        "bottleneck tune train.py:build --safe --markdown tuning.md",
    ),
    "report": (
        "bottleneck report result.json",
        "bottleneck report result.json --format html -o report.html",
        "bottleneck report head.json --format markdown --base base.json",
    ),
    "compare": (
        "bottleneck compare base.json head.json",
        "bottleneck compare base.json head.json --fail-on-regression 5%",
    ),
    "doctor": ("bottleneck doctor",),
    "demo": ("bottleneck demo", "bottleneck demo --budget 20s"),
}


class Command(click.Command):
    """A command whose help has groups of options, and examples at its end."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; of an option that is gone, say so."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name in GONE:
                raise click.UsageError(GONE[error.option_name], ctx) from None
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group that this command has options of."""
        groups: dict[str, list[tuple[str, str]]] = {group: [] for group in _GROUPS}
        for option in self.get_params(ctx):
            shown = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if shown is not None:
                groups[GROUP_OF.get(max(option.opts, key=len), _OTHER)].append(shown)
        for group, rows in groups.items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then what else is to be known."""
        with formatter.section("Examples"):
            formatter.write_text("\b\n" + "\n".join(EXAMPLES[self.name or ""]))
        super().format_epilog(ctx, formatter)
