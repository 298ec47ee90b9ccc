"""`bottleneck attach` on planted jobs that run: is the state right, the line, the share, and is the job left alone?

Each job is started plainly, as a separate script, and attached to a few seconds after it has begun to train. The
truth of the share is told by the loop's own clocks over the same seconds. What attaching costs is measured in pairs
on one job: some seconds with it beside as many without.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import psutil

from benchmarks.checks import Check, interval_percent, markdown_table
from benchmarks.observer import mean_ratio
from benchmarks.planted import PLANTED, Planted, find_planted
from bottleneck.analysis.settings import LOSS_CLEARLY_SMALL, LOSS_WORTH_TOUCHING
from bottleneck.results.json import saved_from_json
from bottleneck.results.records import Interval
from bottleneck.results.watched import WatchedResult

SCRIPT = Path(__file__).parent / "scripts" / "planted_job.py"
LOOP_SCRIPT = SCRIPT.with_name("without_loader.py")
LOOPS = {"get_batch": "read", "ahead": "tokenize", "simulator": "step", "child": "read"}
"""Kinds of loops, and the function of the line that takes the most."""
ATTACHED_AFTER_S = 5.0
SECONDS = 15
LIMIT_S = 20.0
"""An answer within 15 s, and what starting the command and writing take."""
TOLERANCE = 0.03
"""Tolerance for a share beyond its interval."""
MAX_SLOWDOWN = 0.01
PRECISION = 0.02
"""Half the interval of the pace, from which on nothing can be said."""
SLOWED = ("device_bound", "load_spin", "no_workers")
PAIRS, PAIRS_QUICK = 6, 1
_PATIENCE_S = 120.0
_WATCHED_S = 13.0
_QUICK = ("device_bound", "load_wait", "no_workers")

LINES = {
    "load_wait": "Load.__call__",
    "load_spin": "Load.__call__",
    "augment_spin": "Augment.__call__",
    "augment_wait": "Augment.__call__",
    "collate_spin": "Collate.__call__",
    "handoff_unpickle": "rebuild",
    "copy_slow": "SlowCopy.__call__",
    "last_straw": "Augment.__call__",
    "no_workers": "Augment.__call__",
    "finish": "ImagesFinished.__getitem__",
    "load_inline": "ImagesLoadedInline.__getitem__",
    "dict_samples": "Augment.__call__",
    "fetch": "UncutImages.__getitem__",
    "marked_crop": "MarkedImages.crop",
    "marked_other": "MarkedImages.__getitem__",
    "marked_pad": "CollateMarked.pad",
    "large_batch": "CollateOnCanvas.__call__",
    "large_alone": "CollateOnCanvas.__call__",
    "composed": "Crop.__call__",
    "stream": "Augment.__call__",
}
"""The function whose line takes the most, by job. That of `handoff_objects` is pickle's, no line of the user's."""


@dataclass(frozen=True)
class Attached:
    """Answer of attaching to a job."""

    planted: Planted
    seconds: float
    """That the command took."""
    truth: float
    """The share of the loop's time that its input took, by its own clocks."""
    state: str = ""
    share: Interval | None = None
    function: str = ""
    """Name of the function of the costliest line."""
    failure: str = ""

    @property
    def wanted(self) -> str:
        """The state by the loop's own clocks, which may differ from the planted one on a machine that is busy; empty
        between both borders, where none is wrong."""
        if self.truth > LOSS_CLEARLY_SMALL:
            return "input_bound"
        return "device_bound" if self.truth < LOSS_WORTH_TOUCHING else ""

    @property
    def right(self) -> bool:
        """True if the state is that of the loop's own clocks."""
        return bool(self.state) and self.wanted in ("", self.state)

    @property
    def line_right(self) -> bool | None:
        """True if the costliest line is the planted one; None if none is planted."""
        wanted = LINES.get(self.planted.name)
        # Before Python 3.11 the interpreter does not know the class.
        return None if wanted is None else self.function in (wanted, wanted.rpartition(".")[2])

    @property
    def agrees(self) -> bool:
        """True if the interval of the share holds the truth, or is near it."""
        return self.share is not None and self.share.low - TOLERANCE <= self.truth <= self.share.high + TOLERANCE


@dataclass(frozen=True)
class Slowed:
    """The pace of a job while it is watched over that without, in pairs."""

    planted: Planted
    ratios: tuple[float, ...]
    cpu_share: float
    """Share of all cores that the command and its sampler take while they run."""

    @property
    def ratio(self) -> Interval:
        return mean_ratio(self.ratios)


# --- measuring ----------------------------------------------------------------------------------------------------


class RunningJob:
    """A planted job in a separate process, and its clocks."""

    def __init__(self, process: subprocess.Popen[bytes], clocks: np.ndarray) -> None:
        self.pid, self._clocks = process.pid, clocks

    def look(self) -> tuple[float, float, float]:
        """Return batches so far, seconds spent on the input, and the time, as the loop has noted them."""
        while True:
            once, again = self._clocks.copy(), self._clocks.copy()
            if (once == again).all():
                batches, input_s, now_s = map(float, once)
                return batches, input_s, now_s

    def wait_until_it_trains(self, batches: int) -> None:
        """Wait for so many batches.

        Raises:
            TimeoutError: They do not come.
        """
        ends_s = time.monotonic() + _PATIENCE_S
        while self.look()[0] < batches:
            if time.monotonic() > ends_s:
                raise TimeoutError("the job does not train")
            time.sleep(0.1)

    def pace(self, seconds: float) -> float:
        """Return the batches a second of the next seconds."""
        before = self.look()
        time.sleep(seconds)
        after = self.look()
        return (after[0] - before[0]) / (after[2] - before[2])


@contextmanager
def running(name: str) -> Iterator[RunningJob]:
    """Run a planted job until the block is left."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "clocks")
        file.write_bytes(bytes(24))
        process = subprocess.Popen([sys.executable, str(SCRIPT), name, str(file)])
        try:
            yield RunningJob(process, np.memmap(file, dtype=np.float64, mode="r", shape=(3,)))
        finally:
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for child in children:
                child.kill()
            process.wait()


def attach_to(pid: int) -> tuple[WatchedResult | None, str, float]:
    """Return what the command says of a process, why it says nothing, and how long it took."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", "bottleneck", "attach", str(pid), "--seconds", str(SECONDS), "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
    took_s = time.monotonic() - began_s
    if done.returncode:
        return None, done.stderr.strip(), took_s
    found = saved_from_json(done.stdout)
    assert isinstance(found, WatchedResult), json.dumps(done.stdout[:80])
    return found, "", took_s


def attach_once(planted: Planted) -> Attached:
    """Start a job, attach to it, and compare."""
    with running(planted.name) as job:
        job.wait_until_it_trains(3)
        time.sleep(ATTACHED_AFTER_S)
        before = job.look()
        found, failure, took_s = attach_to(job.pid)
        after = job.look()
    truth = (after[1] - before[1]) / (after[2] - before[2])
    if found is None:
        return Attached(planted, took_s, truth, failure=failure)
    function = found.lines[0].function if found.lines else ""
    return Attached(planted, took_s, truth, found.verdict.state, found.verdict.input_share, function)


def attach_all(*, quick: bool) -> list[Attached]:
    """Attach to each planted job, and say on standard error what was found."""
    tried = []
    for planted in PLANTED:
        if not quick or planted.name in _QUICK:
            click.echo(f"attach to {planted.name} … ", err=True, nl=False)
            tried.append(attach_once(planted))
            click.echo(f"{tried[-1].failure or tried[-1].state}, {tried[-1].function}", err=True)
    return tried


def slow_down(name: str, pairs: int) -> Slowed:
    """Compare the pace of a job while it is watched with that before or after, in turns."""
    ratios, cpu_s, watched_s = [], 0.0, 0.0
    with running(name) as job:
        job.wait_until_it_trains(20)
        for number in range(pairs):
            watched_first = number % 2
            plain = 0.0 if watched_first else job.pace(SECONDS)
            began_s, used_s = time.monotonic(), _used_by_children_s()
            with subprocess.Popen(
                [sys.executable, "-m", "bottleneck", "attach", str(job.pid), "--seconds", str(SECONDS + 3)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            ) as watcher:  # fmt: skip
                time.sleep(2.0)  # while it starts
                watched = job.pace(SECONDS - 3)
                watcher.wait()
            cpu_s += _used_by_children_s() - used_s
            watched_s += time.monotonic() - began_s
            ratios.append(watched / (plain or job.pace(SECONDS)))
    return Slowed(find_planted(name), tuple(ratios), cpu_s / (watched_s * (os.cpu_count() or 1)))


def _used_by_children_s() -> float:
    """Return the CPU time of processes of this one that have ended, as the job has not."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def slow_down_all(*, quick: bool) -> list[Slowed]:
    """The same for jobs that are held by their step, by workers, and that have none."""
    slowed = []
    for name in SLOWED[:1] if quick else SLOWED:
        click.echo(f"{name}, watched and not … ", err=True)
        slowed.append(slow_down(name, PAIRS_QUICK if quick else PAIRS))
    return slowed


# --- scripts without a DataLoader -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Looped:
    """Answer of `bottleneck run` to a loop without a DataLoader."""

    kind: str
    seconds: float
    truth: float
    """The share of its input by the loop's own clocks, over the seconds in which it was watched."""
    share: Interval | None = None
    line: str = ""
    failure: str = ""

    @property
    def right(self) -> bool:
        """True if the share's interval, widened by three points, holds the truth, and the line is right."""
        near = self.share is not None and self.share.low - TOLERANCE <= self.truth <= self.share.high + TOLERANCE
        return near and self.line.rpartition(".")[2] == LOOPS[self.kind]


def run_loop(kind: str) -> Looped:
    """Let `bottleneck run` answer for a loop, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        file, written = Path(folder, "clocks"), Path(folder, "result.json")
        file.write_bytes(bytes(24))
        clocks = np.memmap(file, dtype=np.float64, mode="r", shape=(3,))
        command = [sys.executable, "-m", "bottleneck", "run", "--json", str(written), str(LOOP_SCRIPT), kind, str(file)]
        began_s, looks = time.monotonic(), [clocks.copy()]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and time.monotonic() < began_s + _PATIENCE_S:
                time.sleep(0.2)
                looks.append(clocks.copy())
            process.kill()
            said = process.stderr.read() if process.stderr is not None else ""
        took_s, last = time.monotonic() - began_s, looks[-1]
        first = next((one for one in looks if one[2] >= last[2] - _WATCHED_S), last)
        truth = float((last[1] - first[1]) / (last[2] - first[2])) if last[2] > first[2] else 0.0
        if not written.exists():
            return Looped(kind, took_s, truth, failure=said.strip().splitlines()[-1:][0] if said.strip() else "silent")
        found = saved_from_json(written.read_text(encoding="utf-8"))
    assert isinstance(found, WatchedResult)
    line = found.lines[0].function if found.lines else ""
    return Looped(kind, took_s, truth, found.verdict.input_share, line)


def run_loops(*, quick: bool) -> list[Looped]:
    """Let it answer for each kind of loop."""
    tried = []
    for kind in list(LOOPS)[: 1 if quick else None]:
        click.echo(f"run of a loop without a loader, {kind} … ", err=True)
        tried.append(run_loop(kind))
    return tried


def loops_table(tried: Sequence[Looped]) -> str:
    """Return the answer to each loop, in markdown."""
    rows = [
        (
            one.kind,
            one.failure or interval_percent(one.share),
            f"{one.truth:.1%}",
            one.line,
            "" if one.right else "**wrong**",
            f"{one.seconds:.0f} s",
        )
        for one in tried
    ]
    return markdown_table(("loop", "input takes", "its own clocks", "costliest line in", "", "took"), rows)


def check_loops(tried: Sequence[Looped]) -> Check:
    """The bar on loops without a DataLoader."""
    right = sum(one.right for one in tried)
    return Check(
        "run of a loop without a DataLoader: share and line",
        f"all within the interval and {TOLERANCE:.0%}, at the line",
        f"{right} of {len(tried)}",
        right == len(tried),
        tuple(
            f"{one.kind}: {one.failure or interval_percent(one.share)} for {one.truth:.1%}, {one.line}"
            for one in tried
            if not one.right
        ),
    )


# --- judging ------------------------------------------------------------------------------------------------------


def attached_table(tried: Sequence[Attached]) -> str:
    """Return the answer to each job, in markdown."""
    rows = [
        (
            one.planted.name,
            one.planted.state,
            one.failure or one.state,
            "" if one.right else "**wrong**",
            interval_percent(one.share),
            f"{one.truth:.1%}",
            one.function,
            {True: "", False: "**wrong**", None: "none"}[one.line_right],
            f"{one.seconds:.1f} s",
        )
        for one in tried
    ]
    headers = ("job", "planted", "found", "", "input takes", "the loop's own clocks", "costliest line in", "", "took")
    return markdown_table(headers, rows)


def slowed_table(slowed: Sequence[Slowed]) -> str:
    """The pace of the jobs while they are watched, in markdown."""
    rows = [
        (one.planted.name, str(len(one.ratios)), interval_percent(one.ratio), f"{one.cpu_share:.1%}") for one in slowed
    ]
    headers = ("job", "pairs", "pace while it is watched, of that without", "CPU that watching takes, of all cores")
    return markdown_table(headers, rows)


def check_attached(tried: Sequence[Attached]) -> list[Check]:
    """The bars on states, lines, shares and time."""
    lines = [one for one in tried if one.line_right is not None]
    right, found = sum(one.right for one in tried), sum(bool(one.line_right) for one in lines)
    near, slowest = sum(one.agrees for one in tried), max(tried, key=lambda one: one.seconds)
    return [
        Check(
            "attach: states of planted jobs, by the loop's own clocks",
            "all right",
            f"{right} of {len(tried)} right",
            right == len(tried),
            tuple(f"{one.planted.name}: {one.failure or one.state}" for one in tried if not one.right),
        ),
        Check(
            "attach: the costliest line",
            "9 in 10",
            f"{found} of {len(lines)}",
            found >= 0.9 * len(lines),
            tuple(f"{one.planted.name}: {one.function}" for one in lines if not one.line_right),
        ),
        Check(
            "attach: the share of the input, beside the loop's own clocks",
            f"9 in 10 within the interval and {TOLERANCE:.0%}",
            f"{near} of {len(tried)}",
            near >= 0.9 * len(tried),
            tuple(
                f"{one.planted.name}: {interval_percent(one.share)} for {one.truth:.1%}"
                for one in tried
                if not one.agrees
            ),
        ),
        Check(
            "attach: time to the answer",
            f"≤ {LIMIT_S:.0f} s",
            f"{slowest.seconds:.1f} s ({slowest.planted.name})",
            slowest.seconds <= LIMIT_S,
        ),
    ]


def check_slowed(slowed: Sequence[Slowed]) -> Check:
    """The bar on what the job notices; not compared where the pairs differ too much to tell."""
    worst = min(slowed, key=lambda one: one.ratio.estimate)
    known = (worst.ratio.high - worst.ratio.low) / 2 <= PRECISION
    return Check(
        "attach: pace of a job while it is watched",
        f"at most {MAX_SLOWDOWN:.0%} slower",
        f"{interval_percent(worst.ratio)} of the pace without ({worst.planted.name})",
        worst.ratio.estimate >= 1 - MAX_SLOWDOWN if known else None,
    )
