"""Runs every bar of the design and writes RESULTS.md: `python -m benchmarks.bench`.

It takes about three hours, so that its parts can be run by themselves: `--part agreement`. Exits with
status 1 when a bar is missed. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import torch

from benchmarks import (
    advised,
    attached,
    causes,
    counts,
    demo,
    efficiencies,
    gains,
    gpu_page,
    kept,
    large_results,
    marks,
    monitored,
    observer,
    planned,
    ranks,
    resources,
    script_jobs,
    slow_batches,
    slow_starts,
    stopping,
    storage,
    tuned,
    verdicts,
)
from benchmarks.checks import Check, checks_table, off_list
from benchmarks.gpu_checks import check_run
from benchmarks.gpu_lines import LINES, read_lines, shown_run
from benchmarks.gpu_lines import PARTS as GPU_PARTS
from benchmarks.machine import describe_machine, describe_revision, describe_steadiness
from benchmarks.planted import PLANTED, SLOW_STEPS, Planted, find_planted
from benchmarks.regimes import REGIMES
from benchmarks.shapes import SHAPES
from benchmarks.truth import measure_truth
from benchmarks.verdicts import Trial, run_trial

RESULTS = Path(__file__).with_name("results.json")
_ROOT = Path(__file__).parents[1]
REPEATED = ("last_straw", "augment_wait", "device_bound")
TIMED_QUICK = ("last_straw", "load_wait", "no_workers")
SIZED = "augment_wait"
TRUTH_SECONDS = 2.0


@dataclass
class Report:
    """The measurements of a part so far."""

    checks: list[Check] = field(default_factory=list)
    sections: list[tuple[str, str]] = field(default_factory=list)

    def add(self, title: str, table: str, checks: Sequence[Check]) -> None:
        """Appends a section and its checks, and prints both."""
        self.sections.append((title, table))
        self.checks.extend(checks)
        click.echo(f"\n## {title}\n\n{table}\n\n{checks_table(checks)}\n\n{off_list(checks)}\n")


def run_part(name: str, *, quick: bool) -> kept.Part:
    """Run one part of the bench."""
    report, before = Report(), describe_steadiness()
    PARTS[name](report, quick=quick)
    steadiness = {"a fixed computation took, before,": before, "and afterwards": describe_steadiness()}
    taken = time.strftime("%Y-%m-%d", time.gmtime())
    machine, revision = describe_machine() | steadiness, describe_revision()
    return kept.Part(name, taken, machine, tuple(report.sections), tuple(report.checks), revision)


def measure_planted(report: Report, *, quick: bool) -> None:
    """Verdicts and costs of all planted pipelines, and how long each takes."""
    trials = measure_verdicts(report, PLANTED, quick=quick)
    limit_s, mode = (resources.QUICK_LIMIT_S, "--quick") if quick else (resources.DEFAULT_LIMIT_S, "default")
    report.checks.append(resources.check_time(trials, limit_s, mode))
    report.checks.extend(() if quick else resources.check_clear_answers(trials))


def measure_verdicts(report: Report, chosen: Sequence[Planted], *, quick: bool) -> list[Trial]:
    """Diagnoses every planted pipeline, between two looks at what its stages really cost."""
    trials = []
    for planted in chosen:
        before = measure_truth(planted, TRUTH_SECONDS)
        trial = announced_trial(planted, quick=quick)
        trials.append(trial.judged_by(before, measure_truth(planted, TRUTH_SECONDS)))
    table = f"{verdicts.verdicts_table(trials)}\n\n{verdicts.costs_table(trials)}"
    report.add("Planted bottlenecks", table, verdicts.check_trials(trials))
    return trials


def measure_speed(report: Report, *, quick: bool) -> None:
    """Measure the time of a diagnosis with `--quick`, and with a step of one second."""
    quicks = [announced_trial(find_planted(name), quick=True) for name in TIMED_QUICK]
    slow = [] if quick else [announced_trial(planted) for planted in SLOW_STEPS]
    checks = [resources.check_time(quicks, resources.QUICK_LIMIT_S, "--quick")]
    checks += [resources.check_slow_steps(slow)] if slow else []
    report.add("Time to a verdict", verdicts.verdicts_table([*quicks, *slow]), checks)


def measure_marks(report: Report, *, quick: bool) -> None:
    """Measure the cost of a marked stage in ordinary training."""
    prices = marks.measure_prices()
    report.add("Price of a mark", marks.prices_table(prices), [marks.check_prices(prices)])


def measure_monitor(report: Report, *, quick: bool) -> None:
    """Measure the cost of monitoring a loop, and check that it names the stalls of a run."""
    overheads = monitored.measure_overheads(monitored.PAIRS // 4 if quick else monitored.PAIRS)
    report.add("Monitoring", monitored.overheads_table(overheads), [monitored.check_overheads(overheads)])
    click.echo("a run with stalls …", err=True)
    named = monitored.run_with_stalls(1.0 if quick else monitored.MINUTES)
    report.add("Stalls that monitoring names", monitored.stalls_table(named), [monitored.check_stalls(named)])


def measure_large_results(report: Report, *, quick: bool) -> None:
    """Measure the time to show a large saved result."""
    click.echo("a result of 5 MB …", err=True)
    showings = large_results.measure_showings()
    table = large_results.showings_table(showings)
    report.add("Showing a large result", table, [large_results.check_showings(showings)])


def measure_observer(report: Report, *, quick: bool) -> None:
    """The observer effect on several kinds of pipelines."""
    most = observer.MAX_PAIRS_QUICK if quick else observer.MAX_PAIRS
    effects = []
    for name, build in observer.OBSERVED.items():
        click.echo(f"observer effect on {name} …", err=True)
        effects.append(observer.measure_observer_effect(name, build, most_pairs=most))
    report.add("Observer effect", observer.observer_table(effects), [observer.check_observer(effects)])


def measure_stopping(report: Report, *, quick: bool) -> None:
    """Measure how often the stopping rule ends a diagnosis with a wrong answer."""
    tally = stopping.simulate(stopping.JOBS_QUICK if quick else stopping.JOBS)
    report.add("Stopping rule", stopping.tally_table(tally), stopping.check_tally(tally))


def measure_demo(report: Report, *, quick: bool) -> None:
    """Run the demo, as a newcomer does, again and again."""
    shown = demo.run_demos(2 if quick else demo.RUNS)
    report.add("The demo", demo.demos_table(shown), [demo.check_demos(shown)])


def measure_regimes(report: Report, *, quick: bool) -> None:
    """Efficiency with many workers and uneven batches, against plain loops."""
    judged = efficiencies.judge_all("benchmarks.regimes", REGIMES, quick=quick)
    check = efficiencies.check_judged("efficiency against a plain loop, uneven batches in 2 to 12 workers", judged)
    report.add("Regimes", efficiencies.judged_table(judged), [check])


def measure_slow_batches(report: Report, *, quick: bool) -> None:
    """The job that GPUs have: batches of seconds, with many workers, against plain loops."""
    answered = slow_batches.answer_all(quick=quick)
    report.add("Slow batches", slow_batches.answers_table(answered), slow_batches.check_answers(answered))


def measure_shapes(report: Report, *, quick: bool) -> None:
    """Efficiency with batches of varying shapes, against plain loops."""
    judged = efficiencies.judge_all("benchmarks.shapes", SHAPES, quick=quick)
    check = efficiencies.check_judged("efficiency against a plain loop, varying shapes", judged)
    report.add("Shapes", efficiencies.judged_table(judged), [check])


def measure_scripts(report: Report, *, quick: bool) -> None:
    """Verdicts inside scripts, against the scripts' own speed."""
    runs = script_jobs.run_all(quick=quick)
    report.add("Scripts", script_jobs.runs_table(runs), script_jobs.check_runs(runs))


def measure_ranks(report: Report, *, quick: bool) -> None:
    """Jobs of several ranks: verdicts, the cost of sharing gradients, the time that many ranks take."""
    runs = ranks.run_all(quick=quick)
    checks = ranks.check_runs(runs) if quick else [*ranks.check_runs(runs), ranks.check_time()]
    report.add("Ranks", ranks.runs_table(runs), checks)


def measure_gains(report: Report, *, quick: bool) -> None:
    """Gain if free, against plain loops without the stage."""
    found = gains.measure_gains(quick=quick)
    report.add("Gain if free", gains.gains_table(found), [gains.check_gains(found)])


def measure_advice(report: Report, *, quick: bool) -> None:
    """Predicted against realised gains of advice."""
    followed = advised.follow_all(quick=quick)
    report.add("Advice, followed", advised.advised_table(followed), [advised.check_advice(followed)])


def measure_causes(report: Report, *, quick: bool) -> None:
    """Is the first advice the cause?"""
    found = causes.find_all(quick=quick)
    report.add("Causes", causes.causes_table(found), causes.check_causes(found))


def measure_storage(report: Report, *, quick: bool) -> None:
    """Limits of storage behind a network, and the gain of more requests at once."""
    found = storage.name_all(quick=quick)
    report.add("Storage behind a network", storage.storage_table(found), storage.check_storage(found))


def measure_starts(report: Report, *, quick: bool) -> None:
    """Seconds of slow starts, and what the advised changes of them save."""
    found = slow_starts.start_all(quick=quick)
    report.add("Slow starts", slow_starts.starts_table(found), slow_starts.check_starts(found))


def measure_tune(report: Report, *, quick: bool) -> None:
    """Tunings of jobs of which the right settings are known."""
    tried = tuned.tune_all(quick=quick)
    report.add("Tunings", tuned.tuned_table(tried), [tuned.check_tuned(tried)])


def measure_workers(report: Report, *, quick: bool) -> None:
    """Numbers of workers that are found in seconds, against a sweep over all of them."""
    counted = counts.count_all(quick=quick)
    report.add("Numbers of workers", counts.counts_table(counted), [counts.check_counts(counted)])


def measure_plan(report: Report, *, quick: bool) -> None:
    """Compare a plan's predictions for other cores and workers with plain loops."""
    predictions = list(planned.predict_all(quick=quick))
    report.add("Plans", planned.predictions_table(predictions), [planned.check_predictions(predictions)])


def measure_attach(report: Report, *, quick: bool) -> None:
    """Planted jobs that run already, watched."""
    tried, slowed = attached.attach_all(quick=quick), attached.slow_down_all(quick=quick)
    loops = attached.run_loops(quick=quick)
    tables = attached.attached_table(tried), attached.slowed_table(slowed), attached.loops_table(loops)
    checks = [*attached.check_attached(tried), attached.check_slowed(slowed), attached.check_loops(loops)]
    report.add("Jobs that run already, and loops without a DataLoader", "\n\n".join(tables), checks)


def measure_resources(report: Report, *, quick: bool) -> None:
    """Length of the dataset, memory of the caches."""
    lengths = (resources.SHORT_LENGTH, resources.LONG_LENGTH)
    footprints = [resources.measure_footprint(find_planted(SIZED), length) for length in lengths]
    checks = [resources.check_length(*footprints), resources.check_cache(find_planted(SIZED))]
    report.add("Size of the dataset and of the caches", resources.footprints_table(footprints), checks)


def measure_agreement(report: Report, *, quick: bool) -> None:
    """Two runs of the same pipelines, one right after the other: the machine of an hour ago may be another."""
    first: list[Trial] = []
    second: list[Trial] = []
    for name in REPEATED:
        for trials, seed in ((first, 0), (second, 2)):
            trials.append(announced_trial(find_planted(name), quick=quick, seed=seed))
    report.add("Two runs", resources.agreement_table(first, second), [resources.check_agreement(first, second)])


def measure_gpu(report: Report, *, quick: bool) -> None:
    """Find out what holds on an accelerator, and keep it; `quick` rehearses that without one."""
    folder = _ROOT / "build" / ("rehearsal" if quick else "gpu")
    if quick:
        shutil.rmtree(folder, ignore_errors=True)
    options = ["--rehearse"] if quick else [word for part in GPU_PARTS for word in ("--part", part.name)]
    subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_evidence", "--out", str(folder), *options], cwd=_ROOT, check=False
    )
    lines = read_lines(folder / LINES)
    runs = [run for part in GPU_PARTS if (run := shown_run(lines, part.name)) is not None]
    checks = [] if quick else [check for run in runs for check in check_run(run)]  # a rehearsal holds no bar
    report.add("On a GPU", gpu_page.jobs_table(lines), checks)
    if not quick:
        gpu_page.keep_lines(folder)
        gpu_page.write_pages()


def announced_trial(planted: Planted, *, quick: bool = False, seed: int = 0) -> Trial:
    """A trial that says on standard error what it found."""
    click.echo(f"{planted.name} … ", err=True, nl=False)
    trial = run_trial(planted, quick=quick, seed=seed)
    found = trial.failure or f"{trial.state}, {trial.bottleneck}"
    click.echo(f"{'right' if trial.right else 'WRONG'}: {found} in {trial.seconds:.0f} s", err=True)
    return trial


PARTS: dict[str, Callable[..., None]] = {
    "verdicts": measure_planted,
    "regimes": measure_regimes,
    "slow-batches": measure_slow_batches,
    "shapes": measure_shapes,
    "scripts": measure_scripts,
    "ranks": measure_ranks,
    "gains": measure_gains,
    "advice": measure_advice,
    "causes": measure_causes,
    "storage": measure_storage,
    "starts": measure_starts,
    "tune": measure_tune,
    "workers": measure_workers,
    "plan": measure_plan,
    "attach": measure_attach,
    "marks": measure_marks,
    "monitor": measure_monitor,
    "large-results": measure_large_results,
    "observer": measure_observer,
    "resources": measure_resources,
    "agreement": measure_agreement,
    "speed": measure_speed,
    "stopping": measure_stopping,
    "demo": measure_demo,
    "gpu": measure_gpu,
}
"""Parts that can be run alone, in the order of RESULTS.md."""
IN_RESULTS = [name for name in PARTS if name != "gpu"]
"""Parts that need no accelerator."""


@click.command()
@click.option("--part", "parts", multiple=True, metavar="PART", help=f"Only this one, repeatable: {', '.join(PARTS)}.")
@click.option("--only", multiple=True, metavar="NAME", help="Only the verdict on this planted pipeline; keeps nothing.")
@click.option("--quick", is_flag=True, help="Quick diagnoses and fewer pairs; keeps nothing.")
def main(parts: tuple[str, ...], only: tuple[str, ...], quick: bool) -> None:
    """Measure the numbers to hold and write them down."""
    try:
        chosen = [find_planted(name) for name in only]
    except KeyError as error:
        raise click.BadParameter(str(error.args[0]), param_hint="--only") from error
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise click.BadParameter(f"{min(unknown)!r} is none of {', '.join(PARTS)}.", param_hint="--part")
    missed: list[str] = []
    if chosen:
        report = Report()
        measure_verdicts(report, chosen, quick=quick)
        missed = [check.what for check in report.checks if check.missed]
    else:
        for name in parts or (PARTS if torch.cuda.is_available() else IN_RESULTS):
            part = run_part(name, quick=quick)
            missed += [check.what for check in part.checks if check.missed]
            # Part of the measurements must not pass for all of them; GPU.md has those of a GPU.
            if not quick and name != "gpu":
                kept.write(RESULTS, kept.merged(kept.read(RESULTS), part, IN_RESULTS), IN_RESULTS)
    if missed:
        click.echo(f"Missed: {'; '.join(missed)}", err=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
