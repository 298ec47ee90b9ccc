"""Is the verdict right, and are the planted costs found?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.checks import Check, interval_percent, markdown_table, milliseconds, percent
from benchmarks.planted import COMPOSED_TRANSFORMS, Planted
from bottleneck.api import diagnose
from bottleneck.measure.options import ProgressUpdate
from bottleneck.results.records import Interval, Result

SMALLEST_COST_S = 1e-3
COST_TOLERANCE = 0.10
WANTED_COVERAGE = 0.90


@dataclass(frozen=True)
class CostFound:
    """A planted cost beside the estimate of it."""

    stage: str
    planted_s: float
    estimate: Interval | None
    real_s: float | None = None
    """Time of the stage in a plain training loop; None if it was not measured, or has no clock."""

    @property
    def error(self) -> float | None:
        """Estimate over the real cost, or the planted one, minus 1; None when there is no estimate."""
        return None if self.estimate is None else self.estimate.estimate / self._true_s - 1

    @property
    def within_tolerance(self) -> bool:
        """Return True if the estimate is within 10 % of the real cost."""
        return self.error is not None and abs(self.error) <= COST_TOLERANCE

    @property
    def covered(self) -> bool | None:
        """Return True if the interval contains the time by a clock; None without a clock, or without an interval."""
        if self.real_s is None or self.estimate is None or self.estimate.low == self.estimate.high:
            return None
        return self.estimate.low <= self.real_s <= self.estimate.high

    @property
    def _true_s(self) -> float:
        return self.real_s or self.planted_s


@dataclass(frozen=True)
class Trial:
    """One planted pipeline, diagnosed."""

    planted: Planted
    seconds: float
    """Time that the diagnosis took, from the call to its return."""
    state: str
    bottleneck: str | None
    efficiency: Interval | None
    coupled_raw_s: float | None
    """Time per batch of the unchanged job, as the diagnosis measured it."""
    costs: tuple[CostFound, ...]
    cache_bytes: int = 0
    first_right_s: float | None = None
    """When the progress line first had the right state and name; None if it never had."""
    failure: str = ""
    """Reason why there is no verdict; empty if there is one."""

    @property
    def right(self) -> bool:
        """Return True if the verdict is the planted one."""
        return (self.state, self.bottleneck) == (self.planted.state, self.planted.bottleneck)

    def judged_by(self, before: Mapping[str, float], after: Mapping[str, float]) -> Trial:
        """The same with the real costs of the stages, seconds per batch, as seen before and after the diagnosis."""
        costs = (
            replace(cost, real_s=(before[cost.stage] + after[cost.stage]) / 2) if cost.stage in before else cost
            for cost in self.costs
        )
        return replace(self, costs=tuple(costs))


def run_trial(
    planted: Planted,
    *,
    quick: bool = False,
    seed: int = 0,
    cache_bytes: int | None = None,
    length: int | None = None,
) -> Trial:
    """Diagnoses a planted pipeline. A failure is a wrong verdict, not the end of the benchmark."""
    fields = planted.build() if length is None else planted.build(length=length)
    start, right_s = time.perf_counter(), []

    def note(update: ProgressUpdate) -> None:
        if (update.state, update.bottleneck) == (planted.state, planted.bottleneck):
            right_s.append(update.elapsed_s)

    try:
        result = diagnose(fields, quick=quick, seed=seed, cache_bytes=cache_bytes, progress=note)
    except Exception as error:  # noqa: BLE001 - after any failure, the other pipelines are still to be run
        seconds = time.perf_counter() - start
        return Trial(planted, seconds, "failed", None, None, None, (), failure=f"{type(error).__name__}: {error}")
    trial = read_trial(planted, result, time.perf_counter() - start)
    return replace(trial, first_right_s=right_s[0] if right_s else None)


def read_trial(planted: Planted, result: Result, seconds: float) -> Trial:
    """Return a result's statements about the planted stages."""
    found = {stage.name: stage.cost_s_per_batch for stage in result.stages} | _transform_costs(planted, result)
    raw = next((e.coupled for e in result.experiments if e.name == "raw"), None)
    return Trial(
        planted=planted,
        seconds=seconds,
        state=result.verdict.state,
        bottleneck=result.verdict.bottleneck,
        efficiency=result.verdict.efficiency,
        coupled_raw_s=None if raw is None else raw.seconds_per_batch,
        costs=tuple(
            CostFound(stage, cost, found.get(stage))
            for stage, cost in planted.costs_s_per_batch.items()
            if cost >= SMALLEST_COST_S
        ),
        cache_bytes=result.cost.cache_bytes,
    )


def _transform_costs(planted: Planted, result: Result) -> dict[str, Interval | None]:
    """Single transforms -> their cost per batch; they are watched for a moment only, so that there is no interval."""
    costs: dict[str, Interval | None] = {}
    calls_at_once = planted.batch_size / max(planted.num_workers, 1)
    for row in result.evidence.transforms:
        if row.name in COMPOSED_TRANSFORMS:
            seconds = (row.wall_s_per_call or 0.0) * (row.calls_per_sample or 0.0) * calls_at_once
            costs[row.name] = Interval(seconds, seconds, seconds)
    return costs


def check_trials(trials: Sequence[Trial]) -> list[Check]:
    """The bars about being right."""
    wrong = [trial for trial in trials if not trial.right]
    costs = [(trial.planted.name, cost) for trial in trials for cost in trial.costs]
    off = [(name, cost) for name, cost in costs if not cost.within_tolerance]
    return [
        Check(
            "verdicts on planted pipelines",
            "all right",
            f"{len(trials) - len(wrong)} of {len(trials)} right",
            not wrong,
            tuple(f"{trial.planted.name}: {trial.failure or trial.bottleneck or trial.state}" for trial in wrong),
        ),
        Check(
            "cost of a planted stage of 1 ms or more",
            "within 10 %",
            f"{len(costs) - len(off)} of {len(costs)} within",
            not off,
            tuple(f"{name}/{cost.stage}: {percent(cost.error)}" for name, cost in off),
        ),
        check_coverage(costs),
    ]


def check_coverage(costs: Sequence[tuple[str, CostFound]]) -> Check:
    """The bar on the intervals of costs: each promises to contain the truth nineteen times in twenty."""
    judged = [(name, cost) for name, cost in costs if cost.covered is not None]
    out = [(name, cost) for name, cost in judged if not cost.covered]
    within = len(judged) - len(out)
    share = f" ({within / len(judged):.0%})" if judged else ""
    return Check(
        "coverage of the 95 % intervals of costs",
        "≥ 90 % contain the truth",
        f"{within} of {len(judged)}{share}; mean signed error {mean_error(cost for _, cost in judged)}",
        bool(judged) and within >= WANTED_COVERAGE * len(judged),
        tuple(f"{name}/{cost.stage}: {_beyond(cost)}" for name, cost in out),
    )


def mean_error(costs: Iterable[CostFound]) -> str:
    """By how much estimates are too large on average: in time, and as a share."""
    pairs = [(cost.estimate.estimate, cost.real_s) for cost in costs if cost.estimate and cost.real_s]
    if not pairs:
        return "–"
    share = statistics.fmean(estimate / real - 1 for estimate, real in pairs)
    return f"{statistics.fmean(estimate - real for estimate, real in pairs) * 1e3:+.2f} ms, {percent(share)}"


def _beyond(cost: CostFound) -> str:
    """Return how far the truth is outside of an interval."""
    if cost.estimate is None or cost.real_s is None:
        return "–"
    if cost.real_s < cost.estimate.low:
        return f"{milliseconds(cost.estimate.low - cost.real_s)} above the truth, {milliseconds(cost.real_s)}"
    return f"{milliseconds(cost.real_s - cost.estimate.high)} below the truth, {milliseconds(cost.real_s)}"


def verdicts_table(trials: Sequence[Trial]) -> str:
    """Expected and found verdicts, in markdown."""
    rows = [
        (
            trial.planted.name,
            trial.planted.what,
            trial.planted.bottleneck,
            trial.failure or f"{trial.bottleneck or trial.state}",
            "right" if trial.right else "**wrong**",
            interval_percent(trial.efficiency),
            f"{trial.seconds:.0f} s",
        )
        for trial in trials
    ]
    return markdown_table(("pipeline", "planted", "expected", "found", "", "efficiency", "took"), rows)


def costs_table(trials: Sequence[Trial]) -> str:
    """Planted and estimated costs per batch, in markdown."""
    rows = [
        (
            trial.planted.name,
            cost.stage,
            milliseconds(cost.planted_s),
            milliseconds(cost.real_s),
            milliseconds(None if cost.estimate is None else cost.estimate.estimate),
            "–" if cost.estimate is None else f"{milliseconds(cost.estimate.low)} – {milliseconds(cost.estimate.high)}",
            percent(cost.error) + ("" if cost.within_tolerance else " **off**"),
            {True: "in", False: "**out**", None: "–"}[cost.covered],
        )
        for trial in trials
        for cost in trial.costs
    ]
    return markdown_table(
        ("pipeline", "stage", "planted", "really", "estimate", "95 % interval", "error", "truth"), rows
    )
