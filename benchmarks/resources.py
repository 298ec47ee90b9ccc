"""The cost of a diagnosis: time, memory, and whether a second one gives the same answer."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.checks import Check, interval_percent, markdown_table, mebibytes
from benchmarks.planted import Planted
from benchmarks.verdicts import Trial, run_trial

TIMED_STEP_S = (0.010, 0.020)
DEFAULT_LIMIT_S = 60.0
QUICK_LIMIT_S = 20.0
SLOW_STEP_LIMIT_S = 180.0
CLEAR_LIMIT_S, HALF_LIMIT_S, FIRST_RIGHT_LIMIT_S = 25.0, 20.0, 10.0
CLEAR_EFFICIENCY = (0.85, 0.98)
"""Between these a job is no clear one."""
SHORT_LENGTH, LONG_LENGTH = 10**3, 10**8
SAME_TIME = 1.25
SAME_MEMORY = 1.10
TIGHT_CACHE_BYTES = 2 * 2**20


@dataclass(frozen=True)
class Footprint:
    """A diagnosis in a separate process."""

    length: int
    seconds: float
    peak_bytes: int
    """Peak resident memory of the process plus that of its largest worker."""


def check_time(trials: Sequence[Trial], limit_s: float, mode: str) -> Check:
    """The bar on the time of a diagnosis; trials with other steps than it speaks of do not count.

    Raises:
        ValueError: No trial has a step of 10 to 20 ms.
    """
    low_s, high_s = TIMED_STEP_S
    slowest = max((t for t in trials if low_s <= t.planted.step_s <= high_s), key=lambda trial: trial.seconds)
    return Check(
        f"time to diagnose at a 10–20 ms step, {mode}",
        f"≤ {limit_s:.0f} s",
        f"at most {slowest.seconds:.1f} s ({slowest.planted.name})",
        slowest.seconds <= limit_s,
    )


def check_clear_answers(trials: Sequence[Trial]) -> list[Check]:
    """The bars on the time until an answer that is clear: the job loses over 15 %, or under 2 %."""
    low_s, high_s = TIMED_STEP_S
    clear = [
        t
        for t in trials
        if low_s <= t.planted.step_s <= high_s
        and t.efficiency is not None
        and not CLEAR_EFFICIENCY[0] <= t.efficiency.estimate <= CLEAR_EFFICIENCY[1]
    ]
    late = [t for t in clear if t.seconds > CLEAR_LIMIT_S]
    unseen = [t for t in clear if t.first_right_s is None or t.first_right_s > FIRST_RIGHT_LIMIT_S]
    middle_s = statistics.median(t.seconds for t in clear)
    return [
        Check(
            "time to the final answer of a clear job at a 10–20 ms step",
            f"≤ {CLEAR_LIMIT_S:.0f} s, half of them ≤ {HALF_LIMIT_S:.0f} s",
            f"{len(clear) - len(late)} of {len(clear)} within; half of them within {middle_s:.0f} s",
            not late and middle_s <= HALF_LIMIT_S,
            tuple(f"{t.planted.name}: {t.seconds:.0f} s" for t in late),
        ),
        Check(
            "first right state and name on the progress line",
            f"≤ {FIRST_RIGHT_LIMIT_S:.0f} s",
            f"{len(clear) - len(unseen)} of {len(clear)} within",
            not unseen,
            tuple(f"{t.planted.name}: {f'{t.first_right_s:.0f} s' if t.first_right_s else 'never'}" for t in unseen),
        ),
    ]


def check_slow_steps(trials: Sequence[Trial]) -> Check:
    """The bar on the time until a verdict at a step of one second."""
    return Check(
        "verdict at a step of 1 s",
        f"≤ {SLOW_STEP_LIMIT_S:.0f} s",
        ", ".join(f"{t.planted.name}: {t.bottleneck or t.state} in {t.seconds:.0f} s" for t in trials),
        all(trial.right and trial.seconds <= SLOW_STEP_LIMIT_S for trial in trials),
    )


def measure_footprint(planted: Planted, length: int) -> Footprint:
    """Runs `benchmarks.one` on a dataset of the given length.

    Raises:
        subprocess.CalledProcessError: The diagnosis failed; its output went to standard error.
    """
    command = [sys.executable, "-m", "benchmarks.one", planted.name, "--length", str(length)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer = json.loads(done.stdout)
    return Footprint(length, float(answer["seconds"]), int(answer["peak_bytes"]))


def check_length(short: Footprint, long: Footprint) -> Check:
    """The bar on the influence of the dataset's length."""
    time_ratio, memory_ratio = long.seconds / short.seconds, long.peak_bytes / short.peak_bytes
    return Check(
        "dataset of 10⁸ samples against 10³",
        "same time, same memory",
        f"{time_ratio:.2f}x the time, {memory_ratio:.2f}x the memory",
        time_ratio <= SAME_TIME and memory_ratio <= SAME_MEMORY,
    )


def check_cache(planted: Planted) -> Check:
    """The bar on the memory of the caches, with a budget small enough to bind."""
    trial = run_trial(planted, quick=True, cache_bytes=TIGHT_CACHE_BYTES)
    held = not trial.failure and 0 < trial.cache_bytes <= TIGHT_CACHE_BYTES
    measured = trial.failure or mebibytes(trial.cache_bytes)
    return Check("memory of all caches", f"≤ the budget, here {mebibytes(TIGHT_CACHE_BYTES)}", measured, held)


def check_agreement(first: Sequence[Trial], second: Sequence[Trial]) -> Check:
    """Return True if two runs agree: state and bottleneck, and efficiencies whose intervals overlap."""
    apart = [a.planted.name for a, b in zip(first, second, strict=True) if not agree(a, b)]
    return Check(
        "two runs of a pipeline",
        "same verdict, intervals overlap",
        f"{len(first) - len(apart)} of {len(first)} agree" + (f"; not: {', '.join(apart)}" if apart else ""),
        not apart,
    )


def agree(a: Trial, b: Trial) -> bool:
    """Return True if two trials of a pipeline have the same verdict and overlapping efficiencies."""
    if (a.state, a.bottleneck) != (b.state, b.bottleneck) or a.efficiency is None or b.efficiency is None:
        return False
    return a.efficiency.low <= b.efficiency.high and b.efficiency.low <= a.efficiency.high


def footprints_table(footprints: Sequence[Footprint]) -> str:
    """Time and memory by length, in markdown."""
    rows = [(f"{f.length:,}", f"{f.seconds:.1f} s", mebibytes(f.peak_bytes)) for f in footprints]
    return markdown_table(("samples", "took", "peak memory"), rows)


def agreement_table(first: Sequence[Trial], second: Sequence[Trial]) -> str:
    """Both efficiencies of each pipeline, in markdown."""
    rows = [
        (
            a.planted.name,
            f"{a.bottleneck}, {interval_percent(a.efficiency)}",
            f"{b.bottleneck}, {interval_percent(b.efficiency)}",
        )
        for a, b in zip(first, second, strict=True)
    ]
    return markdown_table(("pipeline", "first run", "second run"), rows)
