"""`python -m benchmarks.gpu`: verdicts of real jobs beside plain loops, on a GPU; writes benchmarks/GPU.md.

Without a GPU it says so, and writes nothing. The plain loops use nothing of bottleneck's.
"""

from __future__ import annotations

import datetime
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.checks import Check, checks_table, markdown_table, milliseconds
from benchmarks.gpu_job import FIRST, LADDER, Job, Settings, make_job
from benchmarks.machine import describe_machine
from bottleneck.api import diagnose
from bottleneck.results.records import Interval, Result

PAGE = Path(__file__).parent / "GPU.md"
NO_GPU = "There is no CUDA device here: benchmarks/GPU.md is written by `make gpu-check` on a machine that has one."
JOBS = (
    Settings(),
    Settings(workers=16),
    Settings(workers=16, pinned=False),
    Settings(workers=16, compiled=True),
    Settings(workers=16, autocast=True, uint8=True),
    Settings(workers=8, batch_size=512),
)
"""All but that of bytes have batches of more than 150 MB."""
TUNED = "\n## The same, climbed by tune\n"
"""The heading of what `benchmarks.gpu_tune` adds."""
WARM_UP_S, LOOP_S = 10.0, 40.0
TOLERANCE = 0.01
"""What the truth may be outside of an interval: a point."""

MakeJob = Callable[[Settings], Job]


@dataclass(frozen=True)
class Trial:
    """A job, diagnosed, and the same as plain loops.

    Attributes:
        settings: Of the job.
        state: Of the verdict; `failed` without one.
        bottleneck: Of the verdict.
        efficiency: As diagnosed.
        raw: As diagnosed, in samples a second.
        plain: Of a plain loop, in samples a second.
        plain_device: The same on batches that are on the device.
        seconds: What the diagnosis took.
        notes: Ids of its warnings, or what it failed of.
    """

    settings: Settings
    state: str
    bottleneck: str | None
    efficiency: Interval | None
    raw: float | None
    plain: float
    plain_device: float
    seconds: float
    notes: str = ""

    @property
    def truth(self) -> float:
        """The efficiency by the plain loops."""
        return self.plain / self.plain_device

    @property
    def right(self) -> bool:
        found = self.efficiency
        return found is not None and found.low - TOLERANCE <= self.truth <= found.high + TOLERANCE


def samples_per_s(
    steps: Iterator[int],
    synchronize: Callable[[], None],
    *,
    warm_up_s: float = WARM_UP_S,
    loop_s: float = LOOP_S,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Run a plain loop for a while and return its throughput, the device waited for at both ends only."""
    _run(steps, warm_up_s, clock)
    synchronize()
    began_s = clock()
    samples = _run(steps, loop_s, clock)
    synchronize()
    return samples / (clock() - began_s)


def _run(steps: Iterator[int], limit_s: float, clock: Callable[[], float]) -> int:
    until_s, samples = clock() + limit_s, 0
    while True:
        samples += next(steps)
        if clock() >= until_s:
            return samples


def run_trial(settings: Settings, make: MakeJob, synchronize: Callable[[], None], **options: Any) -> Trial:
    """Diagnose a job, and run it as plain loops before and after. A failure is a row, not the end.

    Args:
        settings: Of the job.
        make: Makes it.
        synchronize: Waits for the device.
        options: `loop`: those of `samples_per_s`; the others go to `diagnose`.
    """
    loop = options.pop("loop", {})

    def plain(steps: Callable[[Job], Iterator[int]]) -> float:
        return samples_per_s(steps(make(settings)), synchronize, **loop)

    before = plain(Job.steps)
    on_device = plain(Job.steps_on_device)
    began_s = time.perf_counter()
    found: Result | None = None
    try:
        found = diagnose(make(settings).fields(), **options)
        notes = ", ".join(dict.fromkeys(warning.id for warning in found.warnings))
    except Exception as error:  # noqa: BLE001 - whatever went wrong is what the row says
        notes = f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - began_s
    truth = (before + plain(Job.steps)) / 2
    if found is None:
        return Trial(settings, "failed", None, None, None, truth, on_device, seconds, notes)
    raw = next((e.coupled.samples_per_s for e in found.experiments if e.name == "raw" and e.coupled), None)
    verdict = found.verdict
    return Trial(settings, verdict.state, verdict.bottleneck, verdict.efficiency, raw, truth, on_device, seconds, notes)


def trials_table(trials: Sequence[Trial]) -> str:
    """Verdicts beside what plain loops say."""
    headers = ("job", "verdict", "efficiency", "plain loops", "", "raw / plain", "took", "warnings")
    rows = [
        (
            str(trial.settings),
            trial.state + (f", {trial.bottleneck}" if trial.bottleneck else ""),
            _interval(trial.efficiency),
            f"{trial.truth:.3f}",
            "in it" if trial.right else "**off**",
            "–" if trial.raw is None else f"{trial.raw / trial.plain:.3f}",
            f"{trial.seconds:.0f} s",
            trial.notes or "–",
        )
        for trial in trials
    ]
    return markdown_table(headers, rows)


def _interval(found: Interval | None) -> str:
    return "–" if found is None else f"{found.estimate:.3f} ({found.low:.3f}–{found.high:.3f})"


def check_trials(trials: Sequence[Trial]) -> Check:
    """Whether the efficiencies are those of plain loops."""
    right = sum(trial.right for trial in trials)
    return Check(
        "efficiency against plain loops, within its interval and a point", "19 in 20", f"{right} of {len(trials)}",
        20 * right >= 19 * len(trials),
    )  # fmt: skip


# --- what a person tries -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rung:
    """A change, and the throughput of the job with all changes so far, block by block."""

    change: str
    settings: Settings
    samples_per_s: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.samples_per_s)


def climb(
    make: MakeJob, synchronize: Callable[[], None], *, first: Settings = FIRST, blocks: int = 3, **loop: Any
) -> list[Rung]:
    """Make one change after the other and run each as a plain loop."""
    settings, rungs = first, []
    for change, changes in LADDER:
        settings = replace(settings, **changes)
        click.echo(f"{change} …", err=True)
        steps = make(settings).steps()
        rates = [samples_per_s(steps, synchronize, **loop)]
        again = {**loop, "warm_up_s": 0.0}
        rates += [samples_per_s(steps, synchronize, **again) for _ in range(blocks - 1)]
        rungs.append(Rung(change, settings, tuple(rates)))
    return rungs


def rungs_table(rungs: Sequence[Rung]) -> str:
    """The ladder: each change, what it brings and what all bring together."""
    rows = []
    for before, rung in zip([rungs[0], *rungs], rungs, strict=False):
        spread = (max(rung.samples_per_s) - min(rung.samples_per_s)) / (2 * rung.mean)
        rows.append((
            rung.change,
            f"{rung.mean:,.0f} ± {100 * spread:.1f} %",
            milliseconds(rung.settings.batch_size / rung.mean),
            f"{rung.mean / before.mean:.2f}x",
            f"{rung.mean / rungs[0].mean:.2f}x",
        ))  # fmt: skip
    return markdown_table(("change", "samples/s", "step", "this change", "all so far"), rows)


# --- the page ----------------------------------------------------------------------------------------------


def render_page(trials: Sequence[Trial], rungs: Sequence[Rung], machine: dict[str, str], when: str) -> str:
    """The whole of GPU.md."""
    facts = markdown_table(("machine", ""), machine.items())
    return (
        f"# On a GPU\n\nWritten by `python -m benchmarks.gpu` on {when}. ResNet-50 with random weights, SGD; "
        "photographs of about 400 pixels a side in memory, decoded and augmented by the workers.\n\n"
        f"{facts}\n\n## Verdicts beside plain loops\n\nThe efficiency of plain loops is the throughput of the job, "
        f"before and after the diagnosis, over that of the same step on four batches on the device.\n\n"
        f"{trials_table(trials)}\n\n{checks_table([check_trials(trials)])}\n\n## What a person tries\n\nEach change on "
        f"top of those before, as a plain loop; ± is half of the span of its blocks.\n\n{rungs_table(rungs)}\n"
    )


def tuned_part(page: Path) -> str:
    """What `benchmarks.gpu_tune` has added to the page; empty where it has not."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    _, found, rest = text.partition(TUNED)
    return found + rest


def _revision() -> str:
    command = ["git", "-C", str(PAGE.parent), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=PAGE, help="Where to write the page.")
@click.option("--loop-seconds", type=float, default=LOOP_S, show_default=True, help="How long a plain loop lasts.")
def main(output: Path, loop_seconds: float) -> None:
    """Measure on a GPU and write benchmarks/GPU.md."""
    if not torch.cuda.is_available():
        click.echo(NO_GPU)
        return
    loop: dict[str, Any] = {"loop_s": loop_seconds}
    trials = []
    for settings in JOBS:
        click.echo(f"{settings} …", err=True)
        trials.append(run_trial(settings, make_job, torch.cuda.synchronize, loop=loop))
        click.echo(trials_table(trials[-1:]), err=True)
    rungs = climb(make_job, torch.cuda.synchronize, **loop)
    machine = {**describe_machine(), "revision": _revision()}
    when = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    page = render_page(trials, rungs, machine, when)
    output.write_text(page + tuned_part(output), encoding="utf-8")
    click.echo(page)


if __name__ == "__main__":
    main()
