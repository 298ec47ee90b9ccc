"""Runs the tutorial and writes its outputs into the page.

    python -m docs.make.tutorial           measures, keeps the results, and writes the output
    python -m docs.make.tutorial --kept    writes what this version prints of the results that were kept

A run that contradicts the text of the page, on a busy machine for example, is refused, and nothing is written.
"""

from __future__ import annotations

import contextlib
import io
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bottleneck.analysis.comparison import compare
from bottleneck.cli.main import run as run_bottleneck
from bottleneck.results.json import load
from docs.make.page import parts, write_anew

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
EXAMPLE = ROOT / "examples" / "tutorial"
PICTURES = ROOT / "docs" / "pictures"
BASE, HEAD = "base.json", "head.json"


def main() -> None:
    """Write the page, from a new run or from the kept results."""
    if sys.argv[1:] not in ([], ["--kept"]):
        sys.exit(__doc__)
    page = from_kept_results() if sys.argv[1:] else from_a_run()
    PAGE.write_text(page, encoding="utf-8")


def from_a_run(run: Callable[[str, Path], str] | None = None) -> str:
    """The page of a run of all its commands; its results are kept. `run` runs a command in a folder."""
    run = run or run_command
    with tempfile.TemporaryDirectory() as scratch:
        folder = copied(EXAMPLE, scratch)
        printed = run_all(PAGE, folder, run)
        refuse_another_story(folder / BASE, folder / HEAD)
        keep(folder, (BASE, HEAD), PICTURES)
        shutil.copy(folder / "profile" / "worker-0.svg", PICTURES / "flamegraph.svg")
        return write_anew(PAGE.read_text(encoding="utf-8"), EXAMPLE, printed)


def run_all(page: Path, folder: Path, run: Callable[[str, Path], str]) -> Callable[[str], str]:
    """Run all commands of a page; what each has printed, when asked in the same order.

    The page may be worked on while it runs, as long as its commands stay.
    """
    commands = [command for part in parts(page.read_text(encoding="utf-8")) for command in part.commands]
    printed = iter([(command, run(command, folder)) for command in commands])
    return lambda command: _next(printed, command)


def keep(folder: Path, names: Sequence[str], where: Path) -> None:
    """Keep saved results, for reports of later versions."""
    for name in names:
        result = (folder / name).read_text(encoding="utf-8")
        # The kernel's release identifies the machine and says nothing about the job.
        (where / name).write_text(result.replace(f" {platform.release()}", ""), encoding="utf-8")


def from_kept_results() -> str:
    """The page with what this version says of the kept results; what the script printed stays."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = copied(EXAMPLE, scratch)
        for name in (BASE, HEAD):
            shutil.copy(PICTURES / name, folder)
        return write_anew(PAGE.read_text(encoding="utf-8"), folder, lambda command: report_kept(command, folder))


def refuse_another_story(base: Path, head: Path) -> None:
    """End here if the page's text is not true of the results."""
    before, after = load(base), load(head)
    compared = compare(before, after)
    claims = {
        "the job is input-bound": before.verdict.state == "input_bound",
        "augment is the bottleneck": before.verdict.bottleneck == "augment",
        "it is advised to crop first": "crop-before" in [advice.id for advice in before.advice],
        "the change makes it faster": compared.throughput.finding == "faster",
        "the train step stays as fast": not compared.warnings,
    }
    missing = [text for text, holds in claims.items() if not holds]
    if missing:
        sys.exit(f"The page says that {', that '.join(missing)}; this run does not. Try again on a quiet machine.")


def copied(example: Path, scratch: str) -> Path:
    """A copy of an example's folder, to run commands in."""
    return Path(shutil.copytree(example, Path(scratch) / "job", ignore=shutil.ignore_patterns("__pycache__")))


def _next(printed: Iterator[tuple[str, str]], command: str) -> str:
    ran, output = next(printed)
    if ran != command:
        sys.exit(f"The page's commands were changed while they ran: {command!r} instead of {ran!r}.")
    return output


def run_command(command: str, folder: Path) -> str:
    """Return the output of a command, without colours; its progress goes to standard error."""
    print(f"$ {command}", file=sys.stderr)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def report_kept(command: str, folder: Path) -> str | None:
    """Return a command's output for the kept results; None for output that they do not determine."""
    words = shlex.split(command)
    if words[0] != "bottleneck":
        return None
    if words[1] in ("diagnose", "tune"):
        words = ["bottleneck", "report", words[words.index("--json") + 1]]
    words = [str(folder / word) if word.endswith(".json") else word for word in words]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run_bottleneck(words[1:])
    return printed.getvalue()


if __name__ == "__main__":
    main()
