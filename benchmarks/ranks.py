"""Jobs of several ranks with something planted, under torch's launcher: which rank, which stage, what sharing costs.

Each rank times its own plain loops before and after the diagnosis: the unchanged job, batches from a cache, and
these without sharing gradients. Steps sleep, so that a few cores do for several ranks.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from benchmarks.checks import Check, markdown_table, milliseconds
from bottleneck.results.evidence import Straggler
from bottleneck.results.json import from_json
from bottleneck.results.records import Result

JOB = Path(__file__).with_name("rank_job.py")
BUDGET_S, QUICK_BUDGET_S = 45.0, 25.0
MAX_OFF = 0.10
"""Relative error allowed for the cost of sharing gradients."""
MAX_SLOWDOWN = 0.02
MAX_TIMES = 2.0
MANY = 8
_PATIENCE_S = 400.0


@dataclass(frozen=True)
class RankJob:
    """A job with something planted, and how a right result is told.

    Attributes:
        name: By which it is found.
        what: For people.
        ranks: How many.
        is_right: Whether a result says what was planted.
        plan: Fields of `rank_job.Plan`.
    """

    name: str
    what: str
    ranks: int
    is_right: Callable[[Result], bool]
    plan: dict[str, Any] = field(default_factory=dict)


def _nothing(result: Result) -> bool:
    return result.verdict.state == "device_bound" and result.verdict.straggler is None and not _syncs(result)


def _syncs(result: Result) -> bool:
    return result.verdict.bottleneck == "sync"


def _held(ranks: tuple[int, ...], stages: Sequence[str]) -> Callable[[Result], bool]:
    def is_right(result: Result) -> bool:
        held = result.evidence.ranks.straggler
        if held is None or result.verdict.straggler not in ranks:
            return False
        return (held.ranks or (held.rank,)) == ranks and held.stage in stages

    return is_right


def _contends(times: float, what: str | None) -> Callable[[Result], bool]:
    def is_right(result: Result) -> bool:
        found = result.evidence.ranks.contention
        is_clear = found.ratio is not None and found.ratio.low > times
        return is_clear and found.what == what and any(a.id == "rank-contention" for a in result.advice)

    return is_right


JOBS: tuple[RankJob, ...] = (
    RankJob("even", "nothing wrong", 4, _nothing, {"step_s": 0.1}),
    RankJob(
        "slow_loader", "one rank loads slowly", 4, _held((2,), ("load", "fetch")),
        {"slow_ranks": (2,), "slow_load_s": 0.2},
    ),
    RankJob(
        "slow_loaders", "two ranks load slowly", 4, _held((1, 3), ("load", "fetch")),
        {"slow_ranks": (1, 3), "slow_load_s": 0.2},
    ),
    RankJob(
        "slow_step", "one rank computes slowly", 4, _held((1,), ("compute",)),
        {"slow_ranks": (1,), "slow_step_s": 0.08},
    ),
    RankJob("slow_sync", "sharing gradients takes 40 ms", 2, _syncs, {"share_s": 0.04}),
    RankJob(
        "one_core", "loaders compute on one core", 2, _contends(1.3, "cores"),
        {"spins": True, "load_s": 0.04, "cores": 1, "workers": 1},
    ),
    RankJob(
        "one_memory", "loaders copy more than the caches hold, on a core each", 2, _contends(1.0, "memory"),
        {"copied_bytes": 64 << 20, "step_s": 0.01, "workers": 1},
    ),
    RankJob(
        "one_disk", "one loader at a time reads", 4, _contends(2.0, None),
        {"load_s": 0.02, "disk": "disk", "workers": 1},
    ),
    RankJob(
        "uneven", "the last rank has fewer samples", 2,
        lambda result: any(advice.id == "uneven-shards" for advice in result.advice), {"last_length": 90_000},
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A job that was diagnosed, beside its plain loops."""

    job: RankJob
    result: Result | None
    loops: tuple[tuple[dict[str, float], dict[str, float]], ...] = ()
    """Rank by rank, before and after."""
    failure: str = ""

    @property
    def right(self) -> bool:
        """Return True if the planted fault was found."""
        return self.result is not None and self.job.is_right(self.result)

    def plain_s(self, what: str) -> float:
        """Time per batch of the slowest rank in a plain loop."""
        return max(statistics.fmean(loop[what] for loop in loops) for loops in self.loops)

    @property
    def sync_s(self) -> float:
        """Return the time of sharing gradients for a batch, by the plain loops."""
        return self.plain_s("cached_s") - self.plain_s("unshared_s")

    @property
    def raw_s(self) -> float | None:
        """Time of a batch of the unchanged job, as it was diagnosed."""
        found = self.result.experiments if self.result is not None else ()
        return next((e.coupled.seconds_per_batch for e in found if e.name == "raw" and e.coupled is not None), None)


def run_all(*, quick: bool) -> list[Run]:
    """Diagnose all planted jobs."""
    runs = []
    for job in JOBS:
        click.echo(f"{job.name} … ", err=True, nl=False)
        runs.append(run(job, QUICK_BUDGET_S if quick else BUDGET_S))
        click.echo("right" if runs[-1].right else f"WRONG {runs[-1].failure[-3000:]}", err=True)
    return runs


def run(job: RankJob, budget_s: float | None, ranks: int | None = None) -> Run:
    """Diagnose one job, on so many ranks or on as many as it has."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        plan = {"budget_s": budget_s, **job.plan}
        if "disk" in plan:
            plan["disk"] = str(Path(folder) / plan["disk"])
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks or job.ranks)]
        done = subprocess.run(
            [sys.executable, *launcher, str(JOB), json.dumps(plan), str(path)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(JOB.parents[1])},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        if done.returncode or not path.exists():
            return Run(job, None, failure=done.stderr)
        found = json.loads(path.read_text())
    return Run(job, from_json(json.dumps(found["result"])), tuple(map(tuple, found["loops"])))


def runs_table(runs: Sequence[Run]) -> str:
    """Return the planted and the found, as a markdown table."""
    rows = []
    for each in runs:
        result = each.result
        if result is None:
            rows.append((each.job.name, each.job.what, str(each.job.ranks), "failed", "", "", "", ""))
            continue
        together = result.evidence.ranks
        ratio, cost_s = together.contention.ratio, together.sync.cost_s_per_batch
        told = f"{result.verdict.state}, {result.verdict.bottleneck}"
        held = None if result.verdict.straggler is None else together.straggler
        straggler = "" if held is None else f", {_named(held)}"
        rows.append((
            each.job.name, each.job.what, str(each.job.ranks), f"{told}{straggler}", milliseconds(each.sync_s),
            "" if cost_s is None else milliseconds(cost_s),
            "" if ratio is None else f"{ratio.estimate:.2f}x ({ratio.low:.2f}–{ratio.high:.2f})",
            "yes" if each.right else "**no**",
        ))  # fmt: skip
    header = ("job", "planted", "ranks", "found", "sync, plain", "sync, found", "together over alone", "right")
    return markdown_table(header, rows)


def _named(held: Straggler) -> str:
    return f"ranks {', '.join(map(str, held.ranks))}" if held.ranks else f"rank {held.rank}"


def check_runs(runs: Sequence[Run]) -> list[Check]:
    """The bars of jobs of several ranks."""
    wrong = [each.job.name for each in runs if not each.right]
    shared = [each for each in runs if each.job.name == "slow_sync" and each.result is not None]
    off = [
        f"{each.job.name}: {_percent(found / each.sync_s - 1)}"
        for each in shared
        if abs((found := _sync_found(each)) / each.sync_s - 1) > MAX_OFF
    ]
    slowed = {each.job.name: each.raw_s / each.plain_s("real_s") - 1 for each in runs if each.raw_s is not None}
    slow = [f"{name}: {_percent(share)}" for name, share in slowed.items() if share > MAX_SLOWDOWN]
    return [
        Check("verdicts on jobs of several ranks", "all right", f"{len(runs) - len(wrong)} of {len(runs)} right",
              not wrong, tuple(wrong)),
        Check("cost of sharing gradients against plain loops", f"within {100 * MAX_OFF:.0f} %",
              f"{len(shared) - len(off)} of {len(shared)} within", bool(shared) and not off, tuple(off)),
        Check("what the diagnosis changes of the speed of ranks", f"≤ {100 * MAX_SLOWDOWN:.0f} %",
              f"{len(slowed) - len(slow)} of {len(slowed)} within", bool(slowed) and not slow, tuple(slow)),
    ]  # fmt: skip


def _sync_found(each: Run) -> float:
    found = each.result.evidence.ranks.sync.cost_s_per_batch if each.result is not None else None
    return 0.0 if found is None else found


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def check_time() -> Check:
    """Compare the time of a diagnosis of many ranks with that of one process, with default budgets."""
    taken = []
    for count in (1, MANY):
        found = run(JOBS[0], None, count)
        taken.append(found.result.cost.seconds if found.result is not None else float("inf"))
    return Check(
        f"time to diagnose {MANY} ranks", f"≤ {MAX_TIMES:g} times that of one",
        f"{taken[0]:.0f} s and {taken[1]:.0f} s", taken[1] <= MAX_TIMES * taken[0],
    )  # fmt: skip
