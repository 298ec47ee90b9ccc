"""The demo, again and again: one name, gains that overlap, no warning, and soon."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checks import Check, interval_percent, markdown_table
from bottleneck.api import diagnose
from bottleneck.demo import WIDTH, build_demo, ensure_photographs
from bottleneck.results.format import gain_interval
from bottleneck.results.json import from_json
from bottleneck.results.records import Interval

RUNS = 10
LIMIT_S, BUDGET_S = 30.0, 26.0
_IMAGES = 300


@dataclass(frozen=True)
class Shown:
    """The answer of one run of the demo."""

    seconds: float
    bottleneck: str | None
    gain: Interval | None
    efficiency: Interval | None
    warnings: tuple[str, ...]


def run_demos(runs: int) -> list[Shown]:
    """Diagnose the demo's job some times, each in a separate process: this one knows marks that the demo has not."""
    folder, found = ensure_photographs(_IMAGES, width=WIDTH), []
    for number in range(runs):
        begun_s = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.demo", str(folder), str(number)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        result = from_json(done.stdout)
        named = next((s for s in result.stages if s.name == result.verdict.bottleneck), None)
        found.append(
            Shown(
                time.perf_counter() - begun_s,
                result.verdict.bottleneck,
                named.possible_gain if named is not None else None,
                result.verdict.efficiency,
                tuple(warning.id for warning in result.warnings),
            )
        )
        print(f"demo: {found[-1].bottleneck} in {found[-1].seconds:.0f} s", file=sys.stderr)
    return found


def demos_table(shown: list[Shown]) -> str:
    """A row for each run."""
    rows = [
        (f"{s.seconds:.0f} s", s.bottleneck or "none", gain_interval(s.gain), interval_percent(s.efficiency),
         ", ".join(s.warnings))
        for s in shown
    ]  # fmt: skip
    return markdown_table(("took", "bottleneck", "gain if free", "efficiency", "warnings"), rows)


def check_demos(shown: list[Shown]) -> Check:
    """The bar of the demo."""
    gains = [s.gain for s in shown if s.gain is not None]
    overlap = len(gains) == len(shown) and max(g.low for g in gains) <= min(g.high for g in gains)
    slowest_s, warned = max(s.seconds for s in shown), sum(bool(s.warnings) for s in shown)
    named = {s.bottleneck for s in shown}
    return Check(
        f"the demo, {len(shown)} times in a row",
        f"one name, gains that overlap, no warning, ≤ {LIMIT_S:.0f} s each",
        f"{', '.join(map(str, sorted(named, key=str)))}; gains {'overlap' if overlap else 'apart'}; "
        f"{warned} with a warning; at most {slowest_s:.0f} s",
        len(named) == 1 and named != {None} and overlap and not warned and slowest_s <= LIMIT_S,
    )


if __name__ == "__main__":
    print(diagnose(build_demo(Path(sys.argv[1])), budget=BUDGET_S, seed=int(sys.argv[2])).to_json())
