"""The observer effect: is the job that the diagnosis measures as fast as the one that the user runs?

The diagnosis' own number for the job as it is (coupled raw) is compared with a plain training loop over a
plain DataLoader with the same arguments. Plain loops run before and after each diagnosis, so that a machine
that gets slower or faster in the meantime does so for both sides of a pair.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy import stats
from torch.utils.data import DataLoader

from benchmarks.checks import Check, markdown_table
from benchmarks.planted import Planted
from benchmarks.verdicts import run_trial
from bottleneck.results.records import Interval

TOLERANCE = 0.02
WARM_UP_BATCHES = 10
NOT_FOR_THE_LOADER = ("train_step", "to_device", "device", "augment", "model", "loss_fn", "optimizer")


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


def measure_observer_effect(planted: Planted, *, pairs: int, plain_seconds: float) -> ObserverEffect:
    """Interleaves plain loops and diagnoses: plain, diagnosis, plain, diagnosis, ..., plain.

    Raises:
        RuntimeError: A diagnosis failed.
    """
    plain = [time_plain_loop(planted.build(), plain_seconds)]
    observed: list[float] = []
    for pair in range(pairs):
        trial = run_trial(planted, quick=True, seed=pair)
        if trial.coupled_raw_s is None:
            raise RuntimeError(f"{planted.name} was not measured: {trial.failure}")
        observed.append(trial.coupled_raw_s)
        plain.append(time_plain_loop(planted.build(), plain_seconds))
    ratios = pair_ratios(plain, observed)
    return ObserverEffect(planted, tuple(ratios), mean_ratio(ratios))


def time_plain_loop(fields: dict[str, Any], seconds: float) -> float:
    """Seconds per batch of the loop that a user would write, on warm persistent workers."""
    arguments = {name: value for name, value in fields.items() if name not in NOT_FOR_THE_LOADER}
    arguments["persistent_workers"] = arguments["num_workers"] > 0
    loader: DataLoader[Any] = DataLoader(**arguments)
    step, device = fields["train_step"], torch.device(fields["device"])
    move: Callable[[Any, torch.device], Any] = fields.get("to_device") or _leave
    batches = iter(loader)
    for _ in range(WARM_UP_BATCHES):
        step(move(next(batches), device))
    done = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        # Whole turns of the workers: they deliver in bursts.
        for _ in range(max(arguments["num_workers"], 1) * 4):
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


def _leave(batch: Any, _device: torch.device) -> Any:
    return batch
