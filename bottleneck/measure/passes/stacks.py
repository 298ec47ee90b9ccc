"""Stacks as profilers give them, cut down to the user's code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from bottleneck.job.code_origin import is_ours
from bottleneck.loader.observe.stack_sampler import SampledStacks
from bottleneck.loader.observe.stage_frames import stage_of_frame
from bottleneck.results.stacks import Frame, Stack

RawFrames = tuple[tuple[str, str, int | None], ...]
_FRAME = re.compile(r"(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)", re.DOTALL)
_LIBRARY = re.compile(r".*[/\\](?:site-packages|dist-packages|lib[/\\]python\d[^/\\]*)[/\\]", re.DOTALL)
_NATIVE = re.compile(r"\.(?:so|dylib|dll)(?:\.[\d.]+)?$")
_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:[\\/]Users[\\/])[^/\\]+[/\\]")
_THREAD_STARTS = ("Thread._bootstrap", "_bootstrap")
_MACHINERY = ("torch/utils/data/_utils/", "multiprocessing/queues.py", "multiprocessing/resource_sharer.py")
"""Files whose frames tell the threads of the loader from those of the user's code."""
_THREAD_FILES = ("threading.py", "concurrent/futures/thread.py")
_SHOWN_PARTS = 3
"""Parts of a path from elsewhere that are kept."""


@dataclass(frozen=True)
class RawStack:
    """A stack as a profiler gave it: function, file and line of each frame, and numbers of samples as in `Stack`."""

    frames: RawFrames
    samples: float
    computing: float | None = None


def parse_collapsed(text: str) -> list[RawStack]:
    """Read stacks written one a line: frames between semicolons, then the number of samples."""
    stacks = []
    for line in text.splitlines():
        joined, _, count = line.rpartition(" ")
        if joined and count.isdigit():
            stacks.append(RawStack(tuple(_parse_frame(frame) for frame in joined.split(";")), float(count)))
    return stacks


def _parse_frame(text: str) -> tuple[str, str, int | None]:
    match = _FRAME.fullmatch(text)
    if match is None:
        return text, "", None
    line = match["line"]
    return match["function"], match["file"], int(line) if line is not None else None


def from_sampler(sampled: SampledStacks) -> list[RawStack]:
    """Return what a sampler inside a worker saw."""
    return [RawStack(frames, float(seen.count), seen.computing) for frames, seen in sampled.stacks.items()]


def join_passes(all_threads: Iterable[RawStack], busy: Iterable[RawStack]) -> list[RawStack]:
    """Put together what two passes of the same length saw.

    Args:
        all_threads: Stacks of threads whether they computed or waited.
        busy: Those of threads that computed.
    """
    return [
        *(RawStack(stack.frames, stack.samples, 0.0) for stack in all_threads),
        *(RawStack(stack.frames, 0.0, stack.samples) for stack in busy),
    ]


def cut_stacks(
    found: Iterable[RawStack], working_folder: Path, *, other_threads: bool = False, idle: bool = False
) -> tuple[Stack, ...]:
    """Cut stacks at the worker's loop and at our own frames, so that the user's code is the base.

    Args:
        found: The stacks of one process.
        working_folder: Files in it are named relative to it.
        other_threads: Keep the threads that the user's code started; those of the loader are dropped anyway.
        idle: Keep these threads also while they wait for something to do.
    """
    cut: dict[tuple[tuple[Frame, ...], str | None], tuple[float, float | None]] = {}
    for seen in found:
        stack = seen
        kept = _cut(stack.frames, other_threads)
        if kept is None:
            continue
        frames, stage, in_stage = kept
        if not in_stage and not idle:
            stack = replace(stack, samples=stack.computing or 0.0)
        key = tuple(Frame(name, shorten(file, working_folder), line) for name, file, line in frames), stage
        samples, computing = cut.get(key, (0.0, 0.0))
        unknown = computing is None or stack.computing is None
        cut[key] = samples + stack.samples, None if unknown else (computing or 0.0) + (stack.computing or 0.0)
    return tuple(Stack(*key, *counted) for key, counted in cut.items())


def _cut(frames: RawFrames, other_threads: bool) -> tuple[RawFrames, str | None, bool] | None:
    """Return the frames of the user's code, their stage and whether a stage called them; None if there are none."""
    named = [(position, stage_of_frame(name, file)) for position, (name, file, _) in enumerate(frames)]
    stages = [(position, stage) for position, stage in named if stage is not None]
    if stages:
        first, last = stages[0][0], stages[-1][1]
        kept = tuple(frame for frame in frames[first + 1 :] if not is_ours(frame[1]))
        return (kept, last or None, True) if kept else None
    starts = [position for position, (name, _, _) in enumerate(frames) if name in _THREAD_STARTS]
    if not other_threads or not starts or any(_is_machinery(file) for _, file, _ in frames):
        return None
    kept = tuple(frame for frame in frames[starts[0] :] if not _slashed(frame[1]).endswith(_THREAD_FILES))
    return (kept, None, False) if kept else None


def _is_machinery(file: str) -> bool:
    return is_ours(file) or any(part in _slashed(file) for part in _MACHINERY)


def _slashed(file: str) -> str:
    return file.replace("\\", "/")


def shorten(file: str, working_folder: Path) -> str:
    """Name a file so that it can be found and no home directory shows."""
    library = _LIBRARY.match(file)
    if library is not None:
        return file[library.end() :]
    if not os.path.isabs(file):
        return file
    if _NATIVE.search(file):
        return os.path.basename(file)
    if Path(file).is_relative_to(working_folder):
        return str(Path(file).relative_to(working_folder))
    home = _HOME.match(file)
    if home is not None:
        file = os.path.join("~", file[home.end() :])
    elif Path(file).is_relative_to(_home_folder()):
        file = os.path.join("~", str(Path(file).relative_to(_home_folder())))
    parts = [part for part in Path(file).parts if part != os.sep]
    return os.path.join("…", *parts[-_SHOWN_PARTS:]) if len(parts) > _SHOWN_PARTS else file


def _home_folder() -> str:
    home = os.path.expanduser("~")
    return home if len(home) > 1 else "~"  # in containers it is the root at times, which all files are in
