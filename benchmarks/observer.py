"""The observer effect: is the job that the diagnosis measures as fast as the one that the user runs?

The diagnosis' own number for the job as it is (coupled raw) is compared with a plain training loop over a
plain DataLoader with the same arguments. Plain loops run before and after each diagnosis, so that a machine
that gets slower or faster in the meantime does so for both sides of a pair.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy import stats

from benchmarks.checks import Check, markdown_table
from benchmarks.plain import plain_loader, plain_move
from benchmarks.planted import Planted
from benchmarks.verdicts import run_trial
from bottleneck.results.records import Interval

TOLERANCE = 0.02
WARM_UP_BATCHES = 10
PRECISION = 0.01
"""Half the interval at which there are pairs enough."""
FEWEST_PAIRS, MOST_PAIRS, MOST_PAIRS_QUICK = 4, 10, 2


@dataclass(frozen=True)
class ObserverEffect:
    """Time per batch under diagnosis over that of the plain loop, in pairs."""

    planted: Planted
    ratios: tuple[float, ...]
    ratio: Interval

    @property
    def held(self) -> bool:
        """Whether the diagnosis measured the user's own speed, within 2 %."""
        return abs(self.ratio.estimate - 1) <= TOLERANCE


def measure_observer_effect(planted: Planted, *, most_pairs: int, plain_seconds: float) -> ObserverEffect:
    """Interleaves plain loops and diagnoses: plain, diagnosis, plain, diagnosis, ..., plain.

    It goes on until the interval of their ratio is narrow: a disturbed machine needs more pairs than a quiet one.

    Raises:
        RuntimeError: A diagnosis failed.
    """
    plain = [time_plain_loop(planted.build(), plain_seconds)]
    observed: list[float] = []
    while True:
        trial = run_trial(planted, quick=True, seed=len(observed))
        if trial.coupled_raw_s is None:
            raise RuntimeError(f"{planted.name} was not measured: {trial.failure}")
        observed.append(trial.coupled_raw_s)
        plain.append(time_plain_loop(planted.build(), plain_seconds))
        ratios = pair_ratios(plain, observed)
        if enough_pairs(ratios, fewest=min(FEWEST_PAIRS, most_pairs), most=most_pairs, precision=PRECISION):
            return ObserverEffect(planted, tuple(ratios), mean_ratio(ratios))


def time_plain_loop(fields: dict[str, Any], seconds: float) -> float:
    """Seconds per batch of the loop that a user would write, on warm persistent workers."""
    step, move, device = fields["train_step"], plain_move(fields), torch.device(fields["device"])
    batches = iter(plain_loader(fields))
    for _ in range(WARM_UP_BATCHES):
        step(move(next(batches), device))
    done = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        # Whole turns of the workers: they deliver in bursts.
        for _ in range(max(fields["num_workers"], 1) * 4):
            step(move(next(batches), device))
            done += 1
    return (time.perf_counter() - start) / done


def pair_ratios(plain: Sequence[float], observed: Sequence[float]) -> list[float]:
    """Each observed time over the geometric mean of the plain times before and after it."""
    return [time_s / math.sqrt(plain[k] * plain[k + 1]) for k, time_s in enumerate(observed)]


def mean_ratio(ratios: Sequence[float]) -> Interval:
    """The geometric mean of the ratios with its 95 % interval by Student's t, on the log scale."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    half = math.inf
    if len(logs) > 1:
        error = statistics.stdev(logs) / math.sqrt(len(logs))
        half = float(stats.t.ppf(0.975, len(logs) - 1)) * error
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def enough_pairs(ratios: Sequence[float], *, fewest: int, most: int, precision: float) -> bool:
    """Whether the interval of the mean ratio is narrow enough, or there are as many pairs as there may be.

    Args:
        ratios: Of the pairs so far.
        fewest: Pairs that there have to be.
        most: Pairs that there may be.
        precision: Half the width of the interval that is wanted.
    """
    if len(ratios) < fewest:
        return False
    found = mean_ratio(ratios)
    return len(ratios) >= most or (found.high - found.low) / 2 <= precision


def check_observer(effects: Sequence[ObserverEffect]) -> Check:
    """The bar on the observer effect."""
    worst = max(effects, key=lambda effect: abs(effect.ratio.estimate - 1))
    return Check(
        "observer effect: coupled raw against the user's own loop",
        "within 2 %",
        f"at most {worst.ratio.estimate - 1:+.1%} ({worst.planted.name})",
        all(effect.held for effect in effects),
    )


def observer_table(effects: Sequence[ObserverEffect]) -> str:
    """The ratios, in markdown."""
    rows = [
        (
            effect.planted.name,
            str(len(effect.ratios)),
            f"{effect.ratio.estimate:.3f}",
            f"{effect.ratio.low:.3f} – {effect.ratio.high:.3f}",
            "held" if effect.held else "**missed**",
        )
        for effect in effects
    ]
    return markdown_table(("pipeline", "pairs", "time diagnosed / plain", "95 % interval", ""), rows)
