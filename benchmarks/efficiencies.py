"""Reported efficiencies beside those of plain loops, and the bar on them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.checks import Check, markdown_table
from benchmarks.loop import LoopTime
from benchmarks.verdicts import interval_percent
from bottleneck.api import diagnose
from bottleneck.results.records import Interval, Result

TOLERANCE = 0.01
"""By which an interval is widened before it is looked whether the truth is in it."""
WANTED_SHARE = 19 / 20


@dataclass(frozen=True)
class Judged:
    """A job, its plain loop and what a diagnosis says of it."""

    name: str
    what: str
    plain: LoopTime
    state: str
    reported: Interval | None
    seconds: float
    """Time that the diagnosis took."""
    failure: str = ""
    """Why there is no verdict; empty when there is one."""

    @property
    def outside(self) -> float:
        """How far the truth is outside of the interval; 0 within it, infinite where nothing was reported."""
        if self.reported is None:
            return float("inf")
        truth = self.plain.efficiency
        return max(self.reported.low - truth, truth - self.reported.high, 0.0)

    @property
    def right(self) -> bool:
        """Whether the widened interval holds the truth."""
        return self.outside <= TOLERANCE


def run_diagnosis(fields: Mapping[str, Any], *, quick: bool = False) -> tuple[Result | None, float, str]:
    """Return the result, what it took in seconds, and why there is none; a failure does not end the bench."""
    start = time.perf_counter()
    try:
        result, failure = diagnose(fields, quick=quick), ""
    except Exception as error:  # noqa: BLE001 - whatever went wrong, the other jobs are still to be run
        result, failure = None, f"{type(error).__name__}: {error}"
    return result, time.perf_counter() - start, failure


def judge(name: str, what: str, plain: LoopTime, fields: Mapping[str, Any], *, quick: bool = False) -> Judged:
    """Diagnose a job whose plain loop has been timed."""
    result, seconds, failure = run_diagnosis(fields, quick=quick)
    if result is None:
        return Judged(name, what, plain, "failed", None, seconds, failure)
    return Judged(name, what, plain, result.verdict.state, result.verdict.efficiency, seconds)


def judged_table(judged: Sequence[Judged]) -> str:
    """True and reported efficiencies, in markdown."""
    rows = [
        (
            one.name,
            one.what,
            f"{one.plain.efficiency:.1%} ± {one.plain.error:.1%}",
            one.failure or interval_percent(one.reported),
            "in" if one.right else "**out**" if one.reported is None else f"**out by {one.outside * 100:.1f}**",
            one.state,
            f"{one.seconds:.0f} s",
        )
        for one in judged
    ]
    headers = ("job", "what", "plain loop ± s.e.", "reported (95 % interval)", "truth", "state", "took")
    return markdown_table(headers, rows)


def check_judged(what: str, judged: Sequence[Judged]) -> Check:
    """The bar on efficiencies."""
    wrong = [one for one in judged if not one.right]
    return Check(
        what,
        "truth within the interval widened by one point, in 19 of 20",
        f"{len(judged) - len(wrong)} of {len(judged)}",
        len(judged) - len(wrong) >= WANTED_SHARE * len(judged),
        tuple(f"{one.name}: {one.failure or f'out by {one.outside * 100:.1f} points'}" for one in wrong),
    )
