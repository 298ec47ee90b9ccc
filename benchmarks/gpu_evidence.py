"""`python -m benchmarks.gpu_evidence`: what holds on a real GPU, in the minutes that one can be had for.

The most valuable parts come first. Each runs in a process of its own with a limit of its own and appends a line to
`OUT/evidence.jsonl` for each thing it finds, so that a run that is cut off loses only its last part. Another call with
the same folder goes on where the last one stopped. `OUT/GPU.md` is the page made of the lines.

It needs Python, torch, torchvision and the packages of `bottleneck`; no network, no make, no plug-ins of pytest. Parts
that need a CUDA device say so where there is none.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

LINES, LOG, RESULTS, PAGE = "evidence.jsonl", "log.txt", "results.jsonl", "GPU.md"
SECONDS = 480.0
_END = "end"
_SHORTEST_SHARE, _SHORTEST_S = 0.5, 10.0
"""A part is not begun with less than this share of its time; it gets a few seconds at least, as torch starts first."""

Line = dict[str, Any]
Note = Callable[..., None]


@dataclass(frozen=True)
class Part:
    """Something to find out.

    Attributes:
        name: For `--part`.
        seconds: Its limit, of a run of SECONDS.
        what: What it shows, as a sentence for the page.
        needs_cuda: It has nothing to say without a CUDA device.
    """

    name: str
    seconds: float
    what: str
    needs_cuda: bool = False


PARTS = (
    Part("machine", 15, "The machine, its copies and its clocks."),
    Part("proofs", 45, "What CUDA does where this project depends on it.", needs_cuda=True),
    Part("changes", 80, "Every change of `tune`: opened, measured in two blocks, closed. The device's memory is "
         "the same before and after."),
    Part("planted", 70, "Jobs with a planted bottleneck; the train step keeps the device busy, and the host free."),
    Part("few_workers", 95, "ResNet-50 on JPEGs with too few workers, between plain loops."),
    Part("tune_script", 160, "An unmodified script of a ResNet-50 with 2 workers: tuned, then timed with the patch."),
    Part("tune", 100, "The job of PyTorch's profiler tutorial, tuned."),
    Part("photographs", 95, "ResNet-50 on JPEGs that 16 workers decode and augment, between plain loops."),
    Part("scripts", 75, "`bottleneck run` on scripts that copy in streams of their own, or read labels on the host."),
    Part("pageable", 95, "ResNet-50 on JPEGs with 16 workers, without pinned memory."),
    Part("compiled", 100, "The same with 16 workers, compiled."),
    Part("large", 100, "The same in batches of 308 MB."),
)  # fmt: skip
"""The first six fit into SECONDS."""


# --- the lines ---------------------------------------------------------------------------------------------


def read_lines(folder: Path) -> list[Line]:
    """The lines of earlier calls; one that was cut off in its middle is left out."""
    found = []
    path = folder / LINES
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


def append_line(folder: Path, part: str, name: str, **facts: Any) -> None:
    """Append one line, which survives whatever happens next."""
    line = json.dumps({"part": part, "name": name, **facts}, default=str)
    with (folder / LINES).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def ended(lines: Iterable[Line]) -> set[str]:
    """The parts that need not run again."""
    return {line["part"] for line in lines if line["name"] == _END}


# --- the run -----------------------------------------------------------------------------------------------


def run_parts(parts: Sequence[Part], folder: Path, seconds: float, *, has_cuda: bool) -> None:
    """Run parts one after the other; time that one leaves over goes to the next."""
    begun_s = time.monotonic()
    able = sum(part.seconds for part in parts if has_cuda or not part.needs_cuda)
    scale = min(1.0, seconds / min(SECONDS, max(able, 1.0)))
    due_s = 0.0
    for part in parts:
        if part.needs_cuda and not has_cuda:
            append_line(folder, part.name, _END, status="needs a CUDA device", seconds=0.0)
            continue
        wanted_s = max(_SHORTEST_S, part.seconds * scale)
        due_s += wanted_s
        limit_s = min(due_s, seconds) - (time.monotonic() - begun_s)
        if limit_s >= _SHORTEST_SHARE * wanted_s:
            click.echo(f"{part.name}, at most {limit_s:.0f} s", err=True)
            _run_part(part.name, folder, limit_s)
            write_page(folder)
    write_page(folder)


def _run_part(name: str, folder: Path, limit_s: float) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_evidence", "--child", name, "--out", str(folder)]
    begun_s = time.monotonic()
    with (folder / LOG).open("ab") as log:
        log.write(f"\n=== {name}\n".encode())
        log.flush()
        child = subprocess.Popen(
            [*command, "--seconds", f"{limit_s:.1f}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = "ok" if child.wait(limit_s) == 0 else f"failed with status {child.returncode}"
        except subprocess.TimeoutExpired:
            status = "cut off at its limit"
        finally:
            _end_group(child)
    append_line(folder, name, _END, status=status, seconds=round(time.monotonic() - begun_s, 1))


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End a part with all its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _run_child(name: str, folder: Path, seconds: float) -> None:
    from benchmarks import gpu_parts, gpu_proofs

    def note(fact: str, **facts: Any) -> None:
        append_line(folder, name, fact, **facts)

    functions = {**gpu_proofs.PARTS, **gpu_parts.PARTS}
    functions[name](note, seconds, folder)


# --- the page ----------------------------------------------------------------------------------------------


def write_page(folder: Path) -> None:
    """Write OUT/GPU.md from the lines."""
    (folder / PAGE).write_text(render_page(read_lines(folder)), encoding="utf-8")


def render_page(lines: Sequence[Line]) -> str:
    """The page: for each part what it shows, and a list of its lines."""
    pieces = [
        "# On a GPU\n\nMade by `python -m benchmarks.gpu_evidence` from `evidence.jsonl`, line by line, call after "
        "call. What was measured by an earlier revision, and missed, stays."
    ]
    for part in PARTS:
        mine = [line for line in lines if line["part"] == part.name]
        if mine:
            shown = "\n".join(map(_item, mine))
            pieces.append(f"## {part.name.replace('_', ' ').capitalize()}\n\n{part.what}\n\n{shown}")
    return "\n\n".join(pieces) + "\n"


def _item(line: Line) -> str:
    held = {"True": " (held)", "False": " (**missed**)"}.get(str(line.get("holds")), "")
    facts = {key: value for key, value in line.items() if key not in ("part", "name", "holds") and value is not None}
    shown = "; ".join(f"{key.replace('_', ' ')} {_shown(value)}" for key, value in facts.items())
    return (
        f"- {line['name'].replace('_', ' ')}{held}: {shown}" if shown else f"- {line['name'].replace('_', ' ')}{held}"
    )


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# --- the command -------------------------------------------------------------------------------------------


def _chosen(names: Sequence[str]) -> list[Part]:
    known = {part.name: part for part in PARTS}
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name}: one of {', '.join(known)}", param_hint="--part")
    return [part for part in PARTS if not names or part.name in names]


@click.command()
@click.option("--seconds", type=click.FloatRange(1), default=SECONDS, show_default=True, help="Time for all parts.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("build/gpu"), show_default=True,
              help="Folder of the lines, the log, the results and the page.")  # fmt: skip
@click.option("--part", "names", multiple=True, help="Only these parts, also where they have ended before.")
@click.option("--child", hidden=True)
def main(seconds: float, out: Path, names: tuple[str, ...], child: str | None) -> None:
    """Find out what holds on a GPU, and write OUT/GPU.md."""
    if child is not None:
        _run_child(child, out, seconds)
        return
    import torch

    out.mkdir(parents=True, exist_ok=True)
    parts = _chosen(names)
    left = parts if names else [part for part in parts if part.name not in ended(read_lines(out))]
    at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    append_line(out, "machine", "call", seconds=seconds, at=at, parts=[part.name for part in left])
    run_parts(left, out, seconds, has_cuda=torch.cuda.is_available())
    click.echo((out / PAGE).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
