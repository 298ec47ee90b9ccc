"""Is the first advice the cause? `bottleneck run` on scripts with a planted cause and on the stories, and on healthy
jobs like them.

Each script is timed alone with the cause and without it: the difference is the truth about the gain that the
advice promises.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.checks import Check, markdown_table
from benchmarks.script_jobs import SCRIPTS, run_python
from bottleneck.analysis.edits.edits import claims_at_most
from bottleneck.api import load
from bottleneck.results.records import Advice

SECONDS, QUICK_SECONDS = 6.0, 3.0
MAX_OVER = 0.25
"""The share by which a promise may exceed the truth."""
WANTED = 0.9
"""Part of the causes that have to come first."""

CAUSES: dict[str, tuple[str, ...]] = {
    "deepcopy": ("costliest-line",),
    "frame_rows": ("costliest-line",),
    "saved_views": ("amplification",),
    "row_groups": ("amplification", "costliest-line"),
    "one_slice": ("amplification",),
    "one_frame": ("amplification",),
    "resampled": ("cache-dataset", "repeated-work"),
    "one_by_one": ("fetch-in-batches",),
    "threads": ("thread-oversubscription",),
    "one_shard": ("idle-workers",),
    "garbage": ("garbage-collection",),
    "drawn": ("slow-sampler",),
    "padded": ("padding",),
    "pickled": ("pickled-objects",),
    "many_tensors": ("many-tensors",),
    "snapshots": ("frequent-snapshots",),
    "watched": ("after-step", "loop-line"),
    "in_the_loop": ("input-in-loop",),
    "saves": ("checkpoints", "after-step"),
    "validates": ("validation",),
    "anomalies": ("switch-left-on",),
}
"""Function of `scripts/causes.py` -> ids of the advice that names its cause."""
STORIES: dict[str, tuple[str, ...]] = {
    "rows_of_a_tensor": ("fetch-in-batches",),
    "many_small_tensors": ("many-tensors",),
    "few_loader_processes": ("more-workers", "wait-less"),
    "camera_augmentation": ("costliest-line", "augment-on-device"),
}
"""Script of `examples/stories`, too, which has its own healthy control."""
NAMED = {**CAUSES, **STORIES}
_STORIES = Path(__file__).resolve().parents[1] / "examples" / "stories"


@dataclass(frozen=True)
class Found:
    """Advice of `run` for a script, with its cause and without."""

    name: str
    sick_s: float
    """Time of a step of the script alone [s]."""
    healthy_s: float
    advice: tuple[Advice, ...]
    twins: tuple[Advice, ...]
    """Advice for the healthy twin."""
    seconds: float
    failure: str = ""

    @property
    def gained(self) -> float:
        """Return the speedup without the cause."""
        return self.sick_s / self.healthy_s

    @property
    def first(self) -> Advice | None:
        return self.advice[0] if self.advice else None

    @property
    def right(self) -> bool:
        """Return True if the cause comes first."""
        return self.first is not None and self.first.id in NAMED[self.name]

    @property
    def promised(self) -> float:
        """The gain that the first advice predicts; 1 where it predicts none."""
        return self.first.gain.estimate if self.first is not None and self.first.gain is not None else 1.0

    @property
    def holds(self) -> bool:
        """Return True if the promise of the cause exceeds the truth by at most a quarter, or says 'at most'."""
        if self.first is None or not self.right:
            return True
        return claims_at_most(self.first) or self.promised <= (1 + MAX_OVER) * self.gained

    @property
    def false_alarms(self) -> tuple[str, ...]:
        """Ids of the cause that the healthy twin gets."""
        return tuple(one.id for one in self.twins if one.id in NAMED[self.name])


def find_all(*, quick: bool) -> list[Found]:
    """Run every script with its cause and without."""
    return [find(name, QUICK_SECONDS if quick else SECONDS) for name in NAMED]


def find(name: str, seconds: float) -> Found:
    """Run a script alone and under the diagnosis, with its cause and without."""
    click.echo(f"{name} … ", err=True, nl=False)
    sick_s, healthy_s = (time_step(*_command(name, healthy=healthy), seconds=seconds) for healthy in (False, True))
    start = time.perf_counter()
    advice, failure = ask(*_command(name))
    took_s = time.perf_counter() - start
    twins, failed = ask(*_command(name, twin=True))
    found = Found(name, sick_s, healthy_s, advice, twins, took_s, failure or failed)
    click.echo(f"{'right' if found.right else 'WRONG'}: {_advised(found)} in {took_s:.0f} s", err=True)
    return found


def _command(name: str, *, healthy: bool = False, twin: bool = False) -> tuple[str, ...]:
    """Return the script of a cause with its arguments: with the cause, without it, or as a healthy twin."""
    if name in STORIES:
        return (str(_STORIES / f"{name}.py"), "fixed" if healthy else "control" if twin else "reported")
    return (str(SCRIPTS / "causes.py"), name, *(["without"] if healthy or twin else []))


def time_step(*command: str, seconds: float) -> float:
    """Return the time of a step of a script alone [s]."""
    done = run_python(command, BENCH_SECONDS=str(seconds))
    done.check_returncode()
    return float(json.loads(done.stdout.splitlines()[-1])["s_per_batch"])


def ask(*command: str) -> tuple[tuple[Advice, ...], str]:
    """The advice of `run` for a script, and why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "result.json"
        done = run_python(("-m", "bottleneck", "run", "--json", str(saved), *command))
        if done.returncode or not saved.exists():
            said = done.stderr.replace("\0", "")  # PyTorch ends what it says of a worker's death with one
            return (), f"status {done.returncode}: {(said.splitlines() or ['nothing was said'])[-1]}"
        return load(saved).advice, ""


def causes_table(found: Sequence[Found]) -> str:
    """The first advice of each script, in markdown."""
    rows = [
        (
            one.name,
            one.failure or _advised(one),
            "right" if one.right else "**wrong**",
            f"{one.promised:.2f}x",
            f"{one.gained:.2f}x",
            ", ".join(one.false_alarms) or "no",
            f"{one.seconds:.0f} s",
        )
        for one in found
    ]
    headers = ("cause", "first advice", "", "predicted gain", "real gain", "advised to its twin", "took")
    return markdown_table(headers, rows)


def _advised(one: Found) -> str:
    return "nothing" if one.first is None else f"{one.first.id}: {one.first.title}"


def check_causes(found: Sequence[Found]) -> list[Check]:
    """The bars on causes."""
    wrong, over = [one for one in found if not one.right], [one for one in found if not one.holds]
    alarmed = [one for one in found if one.false_alarms]
    return [
        Check(
            "cause of a slow job",
            "the first advice in 9 of 10",
            f"{len(found) - len(wrong)} of {len(found)}",
            len(found) - len(wrong) >= WANTED * len(found),
            tuple(f"{one.name}: {one.failure or _advised(one)}" for one in wrong),
        ),
        Check(
            "predicted gain of a cause against the plain loop without it",
            "over it by a quarter at most, or said to be at most",
            f"{len(found) - len(over)} of {len(found)}",
            not over,
            tuple(f"{one.name}: {one.promised:.2f}x for {one.gained:.2f}x" for one in over),
        ),
        Check(
            "the same advice for a job without the cause",
            "never",
            f"{len(alarmed)} of {len(found)}",
            not alarmed,
            tuple(f"{one.name}: {', '.join(one.false_alarms)}" for one in alarmed),
        ),
    ]
