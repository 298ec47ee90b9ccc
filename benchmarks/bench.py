"""Runs every bar of the design and writes RESULTS.md: `python -m benchmarks.bench`.

Exits with status 1 when a bar is missed. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from benchmarks import evidence_cost, large_results, marks, observer, resources, verdicts
from benchmarks.checks import Check, checks_table, markdown_table
from benchmarks.machine import describe_machine, describe_steadiness
from benchmarks.planted import PLANTED, SLOW_STEPS, Planted, find_planted
from benchmarks.truth import measure_truth
from benchmarks.verdicts import Trial, run_trial

RESULTS = Path(__file__).with_name("RESULTS.md")
OBSERVED = ("augment_spin", "load_wait", "copy_slow", "no_workers", "device_bound")
REPEATED = ("last_straw", "augment_wait", "device_bound")
TIMED_QUICK = ("last_straw", "load_wait", "no_workers")
SIZED = "augment_wait"
TRUTH_SECONDS = 2.0
TWICE_THE_TIME = "2m"


@dataclass
class Report:
    """What has been measured so far."""

    steadiness: str = ""
    """How long a fixed computation took on this machine when it all began."""
    checks: list[Check] = field(default_factory=list)
    sections: list[tuple[str, str]] = field(default_factory=list)

    def add(self, title: str, table: str, checks: Sequence[Check]) -> None:
        """Appends a section and its checks, and prints both."""
        self.sections.append((title, table))
        self.checks.extend(checks)
        click.echo(f"\n## {title}\n\n{table}\n\n{checks_table(checks)}\n")

    def to_markdown(self, seconds: float, options: str = "") -> str:
        """The whole of RESULTS.md; `options` says with which part of the measurements it was made."""
        steadiness = {
            "a fixed computation, before": self.steadiness,
            "the same, afterwards": describe_steadiness(),
        }
        machine = markdown_table(("machine", ""), list((describe_machine() | steadiness).items()))
        parts = [
            "# Results of `make bench`",
            "Written by `benchmarks/bench.py`, not edited by hand. A train step that sleeps stands for an "
            "accelerator. Costs are per batch, of the loader alone. They are judged by what the stage takes in a plain "
            "loop over a plain DataLoader, with a clock around it, before and after the diagnosis.",
            machine,
            f"Taken on {time.strftime('%Y-%m-%d', time.gmtime())}, in {seconds / 60:.0f} minutes{options}.",
            "## Bars",
            checks_table(self.checks),
        ]
        for title, table in self.sections:
            parts += [f"## {title}", table]
        return "\n\n".join(parts) + "\n"


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Only the verdict on this planted pipeline; repeatable.")
@click.option("--quick", is_flag=True, help="Quick diagnoses and fewer pairs; writes no RESULTS.md.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Where to write.")
def main(only: tuple[str, ...], quick: bool, output: Path | None) -> None:
    """Measure the numbers to hold and write them down."""
    try:
        chosen = [find_planted(name) for name in only] or list(PLANTED)
    except KeyError as error:
        raise click.BadParameter(str(error.args[0]), param_hint="--only") from error
    # Part of the measurements must not pass for all of them.
    if output is None and not only and not quick:
        output = RESULTS
    report = Report(describe_steadiness())
    start = time.perf_counter()

    def save(missing: str) -> None:
        if output is not None:
            options = ", with --quick" * quick + f", only the verdicts on {len(chosen)} pipelines" * bool(only)
            options += f", without {missing}" if missing else ""
            output.write_text(report.to_markdown(time.perf_counter() - start, options), encoding="utf-8")

    trials, firsts = measure_verdicts(report, chosen, quick=quick)
    if not only:
        # Written after each part: what was measured for half an hour must not be lost to what fails in the end.
        save("the marks, the large result, the observer effect, the times and the resources")
        measure_marks(report)
        measure_large_results(report)
        measure_observer(report, quick=quick)
        measure_evidence_cost(report, quick=quick)
        save("the times and the resources")
        measure_resources(report, trials, quick=quick)
        save("the times")
        measure_speed(report, firsts, quick=quick)
    save("")
    if output is not None:
        click.echo(f"Wrote {output.name}")
    missed = [check.what for check in report.checks if not check.held]
    if missed:
        click.echo(f"Missed: {'; '.join(missed)}", err=True)
    sys.exit(1 if missed else 0)


def measure_verdicts(report: Report, chosen: Sequence[Planted], *, quick: bool) -> tuple[list[Trial], list[Trial]]:
    """Diagnoses every planted pipeline, between two looks at what its stages really cost.

    One that leaves its verdict open is diagnosed again with twice the time, as its user would; the table says so.

    Returns:
        The trials, and those of the first diagnoses.
    """
    trials, firsts = [], []
    for planted in chosen:
        before = measure_truth(planted, TRUTH_SECONDS)
        trial = announced_trial(planted, quick=quick)
        firsts.append(trial)
        if trial.unsure and not planted.at_the_balance:
            trial = replace(announced_trial(planted, seed=1, budget=TWICE_THE_TIME), unsure_before=True)
        trials.append(trial.judged_by(before, measure_truth(planted, TRUTH_SECONDS)))
    table = f"{verdicts.verdicts_table(trials)}\n\n{verdicts.costs_table(trials)}"
    report.add("Planted bottlenecks", table, verdicts.check_trials(trials))
    return trials, firsts


def measure_speed(report: Report, trials: Sequence[Trial], *, quick: bool) -> None:
    """How long a diagnosis takes: at the default, with `--quick`, and with a step of one second."""
    limit_s, mode = (resources.QUICK_LIMIT_S, "--quick") if quick else (resources.DEFAULT_LIMIT_S, "default")
    checks = [resources.check_time(trials, limit_s, mode)]
    rows = list(trials)
    if not quick:
        quicks = [announced_trial(find_planted(name), quick=True) for name in TIMED_QUICK]
        checks.append(resources.check_time(quicks, resources.QUICK_LIMIT_S, "--quick"))
        rows = quicks
    slow = [announced_trial(planted) for planted in SLOW_STEPS]
    checks.append(resources.check_slow_steps(slow))
    report.add("Time to a verdict", verdicts.verdicts_table([*rows, *slow]), checks)


def measure_marks(report: Report) -> None:
    """What a marked stage costs in ordinary training."""
    prices = marks.measure_prices()
    report.add("Price of a mark", marks.prices_table(prices), [marks.check_prices(prices)])


def measure_large_results(report: Report) -> None:
    """How long a large saved result takes to be shown."""
    click.echo("a result of 5 MB …", err=True)
    showings = large_results.measure_showings()
    table = large_results.showings_table(showings)
    report.add("Showing a large result", table, [large_results.check_showings(showings)])


def measure_observer(report: Report, *, quick: bool) -> None:
    """The observer effect on several kinds of pipelines."""
    most = observer.MOST_PAIRS_QUICK if quick else observer.MOST_PAIRS
    effects = []
    for name in OBSERVED:
        click.echo(f"observer effect on {name} …", err=True)
        planted = find_planted(name)
        effects.append(observer.measure_observer_effect(planted, most_pairs=most))
    report.add("Observer effect", observer.observer_table(effects), [observer.check_observer(effects)])


def measure_evidence_cost(report: Report, *, quick: bool) -> None:
    """What it costs the job that its blocks are watched."""
    most = evidence_cost.MOST_PAIRS_QUICK if quick else evidence_cost.MOST_PAIRS
    costs = []
    for name, build in evidence_cost.WATCHED:
        click.echo(f"cost of the evidence on {name} …", err=True)
        costs.append(evidence_cost.measure_evidence_cost(name, build(), most_pairs=most))
    table = evidence_cost.evidence_cost_table(costs)
    report.add("Cost of the evidence", table, [evidence_cost.check_evidence_cost(costs)])


def measure_resources(report: Report, trials: Sequence[Trial], *, quick: bool) -> None:
    """Length of the dataset, memory of the caches, agreement of two runs."""
    lengths = (resources.SHORT_LENGTH, resources.LONG_LENGTH)
    footprints = [resources.measure_footprint(find_planted(SIZED), length) for length in lengths]
    checks = [resources.check_length(*footprints), resources.check_cache(find_planted(SIZED))]
    report.add("Size of the dataset and of the caches", resources.footprints_table(footprints), checks)
    first = [trial for trial in trials if trial.planted.name in REPEATED]
    second = [announced_trial(trial.planted, quick=quick, seed=1) for trial in first]
    report.add("Two runs", resources.agreement_table(first, second), [resources.check_agreement(first, second)])


def announced_trial(planted: Planted, *, quick: bool = False, seed: int = 0, budget: str | None = None) -> Trial:
    """A trial that says on standard error what it found."""
    click.echo(f"{planted.name} … ", err=True, nl=False)
    trial = run_trial(planted, quick=quick, seed=seed, budget=budget)
    found = trial.failure or f"{trial.state}, {trial.bottleneck}"
    judged = "right" if trial.right else "open" if trial.unsure else "WRONG"
    click.echo(f"{judged}: {found} in {trial.seconds:.0f} s", err=True)
    return trial


if __name__ == "__main__":
    main()
