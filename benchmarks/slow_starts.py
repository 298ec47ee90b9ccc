"""Scripts that start slowly in one way each: are its seconds right, and does the advised change save what it says?

A script prints the seconds of its own parts, under the diagnosis as well, so that both are of the same start. What a
change saves is the difference of plain starts with and without it, in turn.
"""

from __future__ import annotations

import io
import json
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from PIL import Image

from benchmarks.checks import Check, markdown_table
from benchmarks.script_jobs import SCRIPTS, run_python
from bottleneck.api import load
from bottleneck.results.records import Advice, Result
from bottleneck.results.starting import AGAIN, DATASET, FIRST_BATCH, SENDING, WORKERS, Starting

PAIRS, PAIRS_QUICK = 4, 2
MAX_OFF = 0.1
"""Part of the script's own seconds by which those of the report may be off."""
MIN_SAVED, MAX_SAVED = 0.5, 1.25
"""Parts of the promised seconds, which are at most, between which the really saved ones lie."""
_FILES = 100_000


@dataclass(frozen=True)
class Slow:
    """A planted slow start.

    Attributes:
        name: As of the script.
        advice: The id of the advice that is expected.
        part: Key of the script's own seconds of what is planted.
    """

    name: str
    advice: str
    part: str

    def reported_s(self, starting: Starting) -> float:
        """Return the seconds of what is planted according to the report [s]."""
        if self.part == "imports":
            slow = (line.seconds for line in starting.lines if "imported_slowly" in (line.code or ""))
            return sum(seconds for seconds in slow if seconds is not None)
        names = {DATASET} if self.part == "dataset" else {WORKERS, AGAIN, SENDING, FIRST_BATCH}
        return sum(part.seconds or 0.0 for part in starting.parts if part.name in names)


SLOW_STARTS = (
    Slow("unguarded", "slow-start", "imports"),
    Slow("guarded", "slow-start", "imports"),
    Slow("listing", "slow-start", "dataset"),
    Slow("pickle", "spawn-pickling", "workers"),
    Slow("preload", "slow-start", "workers"),
)


@dataclass(frozen=True)
class Started:
    """A slow start under the diagnosis, and beside its change."""

    slow: Slow
    own_s: float
    """Seconds that the script itself measured of what is planted, under the diagnosis."""
    reported_s: float
    advice: Advice | None
    """The advice that is expected; None if it was not given."""
    plain_s: tuple[float, ...]
    """Seconds of plain starts, in turn with the following ones."""
    changed_s: tuple[float, ...]
    """Seconds of plain starts with the change."""
    failure: str = ""

    @property
    def off(self) -> float:
        """The difference of the reported seconds, as a part of the script's own."""
        return abs(self.reported_s / self.own_s - 1) if self.own_s else math.inf

    @property
    def promised_s(self) -> float:
        """Seconds that the change saves at most, as advised."""
        facts = {} if self.advice is None else self.advice.evidence
        sent_s = facts.get("num_workers", 0) * facts.get("dataset_pickle_s", 0.0)
        return float(facts.get("saves_s", sent_s))

    @property
    def saved_s(self) -> float:
        """Median of the seconds that the change saved, over the pairs."""
        return statistics.median(before - after for before, after in zip(self.plain_s, self.changed_s, strict=True))

    @property
    def holds(self) -> bool:
        """Return True if the change saves most of what it promises, and not much more."""
        return MIN_SAVED * self.promised_s <= self.saved_s <= MAX_SAVED * self.promised_s


def start_all(*, quick: bool = False) -> list[Started]:
    """Run every slow start under the diagnosis, and by itself with its change and without."""
    with tempfile.TemporaryDirectory(prefix="files-") as folder:
        make_files(Path(folder))
        return [start(slow, folder, PAIRS_QUICK if quick else PAIRS) for slow in SLOW_STARTS]


def make_files(folder: Path) -> None:
    """Make the pictures that a dataset looks at, and the list of them that its change keeps."""
    names, picture = [f"{number:06}.png" for number in range(_FILES)], io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "png")
    for name in names:
        (folder / name).write_bytes(picture.getvalue())
    np.save(folder / "kept.npy", np.array(names))


def start(slow: Slow, files: str, pairs: int) -> Started:
    """Run a slow start under the diagnosis, and by itself with its change and without."""
    click.echo(f"{slow.name} … ", err=True, nl=False)
    command = (str(SCRIPTS / "slow_start.py"), slow.name)
    result, own_s, failure = _diagnose(command, slow.part, files)
    plain, changed = [], []
    for _ in range(pairs):
        plain.append(_time_start((*command, "once"), files))
        changed.append(_time_start((*command, "changed", "once"), files))
    advice = None if result is None else next((one for one in result.advice if one.id == slow.advice), None)
    reported_s = 0.0 if result is None else slow.reported_s(result.evidence.starting)
    found = Started(slow, own_s, reported_s, advice, tuple(plain), tuple(changed), failure)
    click.echo(f"{reported_s:.1f} s of {own_s:.1f}; {found.saved_s:.1f} s less of {found.promised_s:.1f}", err=True)
    return found


def _diagnose(command: Sequence[str], part: str, files: str) -> tuple[Result | None, float, str]:
    """Return the result of `run` for a script, the script's own seconds of a part, and the failure if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "result.json"
        done = run_python(("-m", "bottleneck", "run", "--json", str(saved), *command), SLOW_START_FILES=files)
        own_s = _own_seconds(done.stdout + done.stderr, part)
        if done.returncode or not saved.exists():
            return (
                None,
                own_s,
                f"status {done.returncode}: {(done.stderr.splitlines() or ['nothing was said'])[-1]}",
            )
        return load(saved), own_s, ""


def _own_seconds(printed: str, part: str) -> float:
    """Return the seconds of a part that a script has printed; 0 if it has not."""
    told = next((line for line in printed.splitlines() if line.startswith('{"imports"')), None)
    return 0.0 if told is None else float(json.loads(told)[part])


def _time_start(command: Sequence[str], files: str) -> float:
    """Return the seconds of a process that ends after its first step."""
    begin = time.perf_counter()
    run_python(command, SLOW_START_FILES=files).check_returncode()
    return time.perf_counter() - begin


def starts_table(found: Sequence[Started]) -> str:
    """The slow starts, in markdown."""
    rows = [
        (
            one.slow.name,
            f"{one.own_s:.2f} s",
            one.failure or f"{one.reported_s:.2f} s",
            one.slow.advice if one.advice is not None else "**not given**",
            f"{one.promised_s:.1f} s",
            f"{one.saved_s:.1f} s of {statistics.median(one.plain_s):.1f} s",
            "held" if one.holds else "**missed**",
        )
        for one in found
    ]
    headers = ("planted", "by its own clock", "reported", "advice", "saves at most", "saved in plain starts", "")
    return markdown_table(headers, rows)


def check_starts(found: Sequence[Started]) -> list[Check]:
    """The bars on slow starts."""
    off = [one for one in found if one.off > MAX_OFF]
    missed = [one for one in found if not one.holds]
    return [
        Check(
            "seconds of a slow start by the script's own clock",
            "within 10 %",
            f"{len(found) - len(off)} of {len(found)}",
            not off,
            tuple(f"{one.slow.name}: {one.reported_s:.2f} s of {one.own_s:.2f} s" for one in off),
        ),
        Check(
            "seconds that the advised change of a slow start saves, in plain starts",
            "at least half of those promised, and over them by a quarter at most",
            f"{len(found) - len(missed)} of {len(found)}",
            not missed,
            tuple(f"{one.slow.name}: {one.saved_s:.1f} s for {one.promised_s:.1f} s" for one in missed),
        ),
    ]
