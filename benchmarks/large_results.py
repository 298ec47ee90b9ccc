"""Time to read and show a large saved result in each format, the start of the process included."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from benchmarks.checks import Check, markdown_table
from bottleneck.reports.render import FORMATS
from bottleneck.results.json import load, save, to_json
from bottleneck.results.records import Rate, Result

SAVED = Path(__file__).parent.parent / "tests" / "saved" / "v1-6-traces-and-profile.json"
SIZE_BYTES = 5_000_000
LIMIT_S = 2.0
RUNS = 3
_MAIN = "from bottleneck.cli.main import main; main()"


@dataclass(frozen=True)
class Showing:
    """Time and memory to show a result.

    Attributes:
        command: What was asked for.
        seconds: The median of a few runs, each a separate process.
    """

    command: str
    seconds: float


def enlarge(result: Result, size_bytes: int = SIZE_BYTES) -> Result:
    """A result that takes at least so many bytes as JSON: its blocks come again and again, in later rounds."""
    small, double = len(to_json(result)), len(to_json(_repeated(result, 2)))
    for times in count(max(1, (size_bytes - small) // max(1, double - small))):
        larger = _repeated(result, times)
        if len(to_json(larger)) >= size_bytes:
            return larger
    raise AssertionError("count() has no end")


def _repeated(result: Result, times: int) -> Result:
    return replace(
        result,
        experiments=tuple(
            replace(e, coupled=_again(e.coupled, times), drained=_again(e.drained, times)) for e in result.experiments
        ),
        without=tuple(replace(w, coupled=_again(w.coupled, times)) for w in result.without),
    )


def _again(rate: Rate | None, times: int) -> Rate | None:
    if rate is None or not rate.blocks:
        return rate
    rounds = 1 + max(block.round for block in rate.blocks)
    blocks = (replace(block, round=block.round + rounds * time) for time in range(times) for block in rate.blocks)
    return replace(rate, blocks=tuple(blocks))


def measure_showings() -> list[Showing]:
    """Show a large result, and compare it with itself, in every format."""
    with tempfile.TemporaryDirectory() as folder:
        save(enlarge(load(SAVED)), Path(folder, "large.json"))
        commands = [("report", "large.json"), ("compare", "large.json", "large.json")]
        asked = [(*command, "--format", form) for command in commands for form in FORMATS]
        return [Showing(" ".join(arguments), _seconds(arguments, folder)) for arguments in asked]


def _seconds(arguments: Sequence[str], folder: str) -> float:
    took = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", _MAIN, *arguments], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def check_showings(showings: Sequence[Showing]) -> Check:
    """The bar on reading and showing one large result."""
    reports = [showing for showing in showings if showing.command.startswith("report")]
    slowest = max(reports, key=lambda showing: showing.seconds)
    return Check(
        "a result of 5 MB, read and shown in any format",
        f"≤ {LIMIT_S:.0f} s",
        f"at most {slowest.seconds:.2f} s (`{slowest.command}`)",
        slowest.seconds <= LIMIT_S,
    )


def showings_table(showings: Sequence[Showing]) -> str:
    """The times in markdown."""
    return markdown_table(("command", "time"), [(f"`{s.command}`", f"{s.seconds:.2f} s") for s in showings])
