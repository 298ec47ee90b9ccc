"""`python -m benchmarks.gpu_evidence`: evidence from a real GPU, in the minutes that one can be had for.

All parts start at once, each in a separate process, build their jobs and wait; then they run one after the other, the
most valuable first. Each appends a line to `OUT/evidence.jsonl` for each thing it finds, so that a run that is cut off
loses only its last part. Another call with the same folder goes on where the last one stopped. `OUT/GPU.md` is the page
made of the lines.

It needs Python, torch, torchvision and the packages of `bottleneck`; no network, no make, no plug-ins of pytest.
`--rehearse` runs all of it in four minutes on two cores without a GPU, with a step that sleeps.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.checks import checks_table
from benchmarks.gpu_checks import check_run
from benchmarks.gpu_facts import Place
from benchmarks.gpu_lines import (
    BEGIN,
    END,
    LINES,
    LOG,
    NAMES,
    PAGE,
    PARTS,
    READY,
    REHEARSED,
    Line,
    Part,
    append_line,
    ended,
    read_lines,
    shown_run,
)
from benchmarks.gpu_page import to_page

SECONDS, REHEARSAL_S = 480.0, 240.0
MAX_START_S = 60.0
"""The first part waits for all others to have built their jobs, but no longer."""
_REHEARSED_SCALE = 0.2
_MIN_SHARE = 0.5
"""A part is not begun with less than this share of its time."""


# --- the run -----------------------------------------------------------------------------------------------


class Children:
    """Parts as processes that build their jobs at once and then wait to be told to go.

    Args:
        parts: Parts to run, in their order.
        folder: Folder of the lines.
        command: Command that starts a child, without the name of its part.
    """

    def __init__(self, parts: Sequence[Part], folder: Path, command: Sequence[str]) -> None:
        self._folder, self._log = folder, (folder / LOG).open("ab")
        self._lines_before = len(read_lines(folder / LINES))
        self._children = {
            part.name: subprocess.Popen(
                [*command, part.name],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
            for part in parts
        }

    def wait_until_ready(self, limit_s: float) -> None:
        """Wait until all have built their jobs or ended, or until there is no more time for it."""
        until_s = time.monotonic() + limit_s
        while time.monotonic() < until_s:
            lines = read_lines(self._folder / LINES)[self._lines_before :]
            ready = {line["part"] for line in lines if line["name"] == READY}
            if all(name in ready or child.poll() is not None for name, child in self._children.items()):
                return
            time.sleep(0.1)

    def run(self, name: str, limit_s: float) -> str:
        """Let one go, and return how it ended."""
        child = self._children[name]
        try:
            if child.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    child.stdin.write(f"{limit_s:.1f}\n".encode())
                    child.stdin.flush()
            return "ok" if child.wait(limit_s) == 0 else f"failed with status {child.returncode}"
        except subprocess.TimeoutExpired:
            return "cut off at its limit"
        finally:
            self._end(child)

    def close(self) -> None:
        """End all that are left, with all their workers."""
        for child in self._children.values():
            self._end(child)
        self._log.close()

    @staticmethod
    def _end(child: subprocess.Popen[bytes]) -> None:
        if child.stdin is not None and not child.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@contextmanager
def started(parts: Sequence[Part], folder: Path, command: Sequence[str]) -> Iterator[Children]:
    """Start the children of parts, and end them in any case."""
    children = Children(parts, folder, command)
    try:
        yield children
    finally:
        children.close()


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def run_parts(
    parts: Sequence[Part], folder: Path, seconds: float, describe: Callable[[], dict[str, Any]], command: Sequence[str]
) -> None:
    """Run parts one after the other; time that one leaves over goes to the next.

    Args:
        parts: Parts in their order.
        folder: Folder of the lines.
        seconds: Time for all of them together.
        describe: Function that says where they run, for the line with which each begins.
        command: Command that starts a child, without the name of its part.
    """
    until_s = time.monotonic() + seconds
    with started(parts, folder, command) as children:
        where = describe()
        children.wait_until_ready(min(MAX_START_S, seconds))
        due_s = time.monotonic()
        share = (until_s - due_s) / sum(part.seconds for part in parts)
        for part in parts:
            due_s += part.seconds * share
            limit_s = due_s - time.monotonic()
            if limit_s < _MIN_SHARE * part.seconds * min(1.0, share):
                continue
            click.echo(f"{part.name}, at most {limit_s:.0f} s", err=True)
            append_line(folder, part.name, BEGIN, at=_now(), **where)
            begun_s = time.monotonic()
            status = children.run(part.name, limit_s)
            append_line(folder, part.name, END, status=status, seconds=round(time.monotonic() - begun_s, 1))


# --- a child -----------------------------------------------------------------------------------------------


def run_child(name: str, place: Place) -> None:
    """Build the job of a part, wait for a line with the seconds that it may take, and measure."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begun_s = time.perf_counter()
    part = _build(name, place)
    append_line(place.folder, name, READY, seconds=round(time.perf_counter() - begun_s, 1))
    told = os.read(0, 100)
    if not told:
        return  # all have ended
    threading.Thread(target=_end_with_parent, daemon=True).start()
    part.run(lambda fact, **facts: append_line(place.folder, name, fact, **facts), float(told))


def _build(name: str, place: Place) -> Any:
    """Build a part; the modules of the others are not imported."""
    modules = {
        "machine": "gpu_memory",
        "memory": "gpu_memory",
        "tune_script": "gpu_scripts",
        "run_script": "gpu_scripts",
    }
    module = importlib.import_module(f"benchmarks.{modules.get(name, 'gpu_parts')}")
    return module.PARTS[name](place)


def _end_with_parent() -> None:
    """End this part and its workers when the pipe to the process that started it is closed."""
    os.read(0, 1)  # not by sys.stdin, whose lock a worker would inherit
    os.killpg(0, signal.SIGKILL)


# --- the command -------------------------------------------------------------------------------------------


def _chosen(names: Sequence[str]) -> list[Part]:
    for name in names:
        if name not in NAMES:
            raise click.BadParameter(f"{name}: one of {', '.join(NAMES)}", param_hint="--part")
    return [part for part in PARTS if not names or part.name in names]


def describe_place(*, rehearsed: bool) -> dict[str, Any]:
    """Say where the parts run, for their lines.

    Raises:
        click.ClickException: There is no GPU, and it is no rehearsal.
    """
    from benchmarks.machine import describe_machine, describe_revision

    machine = describe_machine()
    if machine["accelerator"] == "none" and not rehearsed:
        raise click.ClickException("There is no CUDA device here. --rehearse runs all of it with a step that sleeps.")
    card = REHEARSED if rehearsed else machine["accelerator"]
    return {"card": card, "code": describe_revision(), "machine": machine}


def report(lines: Sequence[Line], parts: Sequence[Part]) -> tuple[list[str], list[str]]:
    """Print the bars of parts, and return the names of those that are not complete and of those that missed one."""
    runs = {part.name: run for part in parts if (run := shown_run(lines, part.name)) is not None}
    checks = {name: check_run(run) for name, run in runs.items()}
    incomplete = [part.name for part in parts if part.name not in runs or runs[part.name].status != "ok"]
    missed = [name for name, found in checks.items() if any(check.missed for check in found)]
    click.echo(f"{checks_table(check for found in checks.values() for check in found)}\n")
    for what, names in (("Not complete", incomplete), ("Missed", missed)):
        if names:
            click.echo(f"{what}: {' '.join(f'--part {name}' for name in names)}", err=True)
    return incomplete, missed


@click.command()
@click.option("--seconds", type=click.FloatRange(1), help="Time for all parts. [default: 480; of a rehearsal 240]")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("build/gpu"),
    show_default=True,
    help="Folder of the lines, the log, the results and the page.",
)
@click.option("--part", "names", multiple=True, help="Only these parts, also where they have ended before.")
@click.option("--rehearse", is_flag=True, help="Everything on two cores, with a step that sleeps.")
@click.option("--child", hidden=True)
@click.option("--scale", type=float, default=1.0, hidden=True)
def main(
    seconds: float | None, out: Path, names: tuple[str, ...], rehearse: bool, child: str | None, scale: float
) -> None:
    """Find out what holds on a GPU, and write OUT/GPU.md."""
    if child is not None:
        run_child(child, Place(out, "cpu" if rehearse else "cuda:0", scale))
        return
    if rehearse:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    out.mkdir(parents=True, exist_ok=True)
    chosen = _chosen(names)
    left = chosen if names else [part for part in chosen if part.name not in ended(read_lines(out / LINES))]
    if left:
        seconds = seconds or (REHEARSAL_S if rehearse else SECONDS)
        scale = _REHEARSED_SCALE if rehearse else min(1.0, seconds / sum(part.seconds for part in left))
        command = [sys.executable, "-m", "benchmarks.gpu_evidence", "--scale", str(scale)]
        command += [*(["--rehearse"] if rehearse else []), "--out", str(out), "--child"]
        run_parts(left, out, seconds, partial(describe_place, rehearsed=rehearse), command)
    lines = read_lines(out / LINES)
    (out / PAGE).write_text(to_page(lines), encoding="utf-8")
    incomplete, missed = report(lines, chosen)
    sys.exit(1 if incomplete or (missed and not rehearse) else 0)


if __name__ == "__main__":
    main()
