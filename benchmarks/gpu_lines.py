"""The parts of `benchmarks.gpu_evidence`, and the lines that they append to a file that survives anything."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

LINES, LOG, RESULTS, PAGE = "evidence.jsonl", "log.txt", "results.jsonl", "GPU.md"
BEGIN, READY, END = "begin", "ready", "end"
"""Names of the lines that every part has: told to go, its job built, over."""
REHEARSED = "none: a step that sleeps"
"""Stands for the card in a rehearsal."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A part of the evidence.

    Attributes:
        name: Name for `--part` and in its lines.
        seconds: Time that it takes on a GPU.
        title: Title of its section and of its row in the table of jobs.
        what: Sentence on what it shows, for the page.
    """

    name: str
    seconds: float
    title: str
    what: str


PARTS = (
    Part("machine", 14, "Machine", "The card, the versions, and copies of a batch."),
    Part(
        "few_workers",
        60,
        "ResNet-50, 3 workers",
        "Batches that take a worker over a second: state, name, and the advice of more workers.",
    ),
    Part(
        "enough_workers",
        55,
        "ResNet-50, 16 workers",
        "The device limits the job: an early end, and the advice on precision.",
    ),
    Part(
        "fast_step",
        58,
        "ResNet-50, 16 workers, bfloat16 and channels_last",
        "The cores limit the job, with a fast step: the name, and the advice of bytes instead of floats.",
    ),
    Part(
        "copies",
        38,
        "38 MB, pageable, moved within its own dict",
        "A copy that costs: what it takes by events, and the advice of pinned memory.",
    ),
    Part(
        "tune_script",
        115,
        "a script, 2 workers, `tune`",
        "An unmodified script, tuned; run alone before and after, twice each, in turns.",
    ),
    Part(
        "run_script",
        65,
        "a script, `run`: compiled, fp16 with a scaler, 4 batches an update, a prefetcher",
        "What a script may do that no description has.",
    ),
    Part("memory", 50, "Memory", "What stays of recorded graphs and of a changed layout; a sharded model afterwards."),
)
"""The most valuable first."""
NAMES = tuple(part.name for part in PARTS)


def append_line(folder: Path, part: str, name: str, **facts: Any) -> None:
    """Append one line, which survives any later failure."""
    line = json.dumps({"part": part, "name": name, **facts}, default=str)
    with (folder / LINES).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[Line]:
    """The lines of a file; one that was cut off in its middle is left out, and a missing file has none."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


def ended(lines: Iterable[Line]) -> set[str]:
    """The parts that need not run again."""
    return {line["part"] for line in lines if line["name"] == END}


@dataclass(frozen=True)
class Run:
    """One run of a part.

    Attributes:
        part: Its name.
        lines: All of it, from its begin to its end or to where it was cut off.
    """

    part: str
    lines: tuple[Line, ...]

    @property
    def status(self) -> str:
        """'ok', or why it is not complete."""
        return str(next((line["status"] for line in self.lines if line["name"] == END), "cut off with the call"))

    def __getitem__(self, name: str) -> Line:
        """Return the last line of a name; an empty one if there is none."""
        return next((line for line in reversed(self.lines) if line["name"] == name), {})


def runs_of(lines: Sequence[Line], part: str) -> Iterator[Run]:
    """Yield the runs of a part in their order; lines of before runs had a begin belong to none."""
    mine = [line for line in lines if line["part"] == part and line["name"] != READY]
    begins = [number for number, line in enumerate(mine) if line["name"] == BEGIN]
    for begin, until in pairwise([*begins, len(mine)]):
        yield Run(part, tuple(mine[begin:until]))


def shown_run(lines: Sequence[Line], part: str) -> Run | None:
    """Return the last complete run of a part, or else its last one; None without any."""
    runs = list(runs_of(lines, part))
    complete = [run for run in runs if run.status == "ok"]
    return next(reversed(complete or runs), None)
