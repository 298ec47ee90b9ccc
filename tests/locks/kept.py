"""Texts that are kept, and what runs now, in a separate process: time is invented there for all modules."""

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
HOW = "python -m tests.locks.keep {} (its docstring says when)"


def text_of(what):
    return (FOLDER / f"{what}.txt").read_text(encoding="utf-8")


def text_now(what):
    done = subprocess.run(
        [sys.executable, "-m", "tests.locks.watched", what],
        cwd=FOLDER.parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(FOLDER.parents[1])},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def keep(what):
    (FOLDER / f"{what}.txt").write_text(text_now(what), encoding="utf-8")


def check(what):
    """Compare line by line."""
    kept, now = _in_sections(text_of(what)), _in_sections(text_now(what))
    changed = [line for line in difflib.ndiff(kept, now) if line[0] in "-+"]
    if changed:
        shown = "\n".join(changed[:12])
        pytest.fail(f"{len(changed)} lines differ from {what}.txt; {HOW.format(what)}:\n{shown}", pytrace=False)


def _in_sections(text):
    """Each line with the section that it stands in."""
    under, lines = "", []
    for line in text.splitlines():
        under = line.removeprefix("# ") if line.startswith("#") else under
        lines.append(f"{under} | {line}")
    return lines
