"""Profiles of the workers: py-spy's own files of each, and the user's functions with the most own time.

They come after the timed rounds, since a profiler stops the process for each sample. No failure here ends the
diagnosis.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from bottleneck.job.users_code import is_ours
from bottleneck.loader import modes
from bottleneck.loader.observing.observe import stage_of_frame
from bottleneck.loader.switched import SwitchedLoader
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.options import ProfileOptions
from bottleneck.measure.passes.pyspy import GRACE_S, FileFormat, PySpyOptions, allow_tracing, find_py_spy, record
from bottleneck.results.evidence import FunctionSeen, Profile
from bottleneck.results.names import span_of
from bottleneck.results.warnings.unseen import (
    profile_empty,
    profile_failed,
    profile_some_workers,
    py_spy_failed,
    py_spy_missing,
)

_BUDGET_SHARE = 0.1
_MIN_S = 2
_MAX_S = 4
_MAX_WORKERS = 16
"""Processes that are profiled at once; the workers of one job do the same."""
_SUFFIXES: dict[FileFormat, str] = {"speedscope": "speedscope.json", "flamegraph": "svg"}

Frame = tuple[str, str, int | None]
"""Function, file, and the first line of the function; None for native code."""
Stacks = Counter[tuple[Frame, ...]]
"""Samples of each stack, from the outermost frame inwards."""
OwnSamples = Counter[tuple[Frame, str | None]]
"""Samples with each function as the innermost one of a stage; None if the stack does not show the stage."""

MAX_FUNCTIONS = 50
_ADDRESS = re.compile(r"0x[0-9a-f]+", re.IGNORECASE)
_LIBRARY = re.compile(r".*[/\\](?:site-packages|dist-packages|lib[/\\]python\d[^/\\]*)[/\\]", re.DOTALL)
_NATIVE = re.compile(r"\.(?:so|dylib|dll)(?:\.[\d.]+)?$")
_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:[\\/]Users[\\/])[^/\\]+[/\\]")
_THREAD_STARTS = ("Thread._bootstrap", "_bootstrap")
_MACHINERY = ("torch/utils/data/_utils/", "multiprocessing/queues.py", "multiprocessing/resource_sharer.py")
"""Files whose frames are in threads of the loader, not of the user's code."""
_THREAD_FILES = ("threading.py", "concurrent/futures/thread.py", "/queue.py", "/selectors.py")
"""Files in which threads begin, and wait for work."""
_SHOWN_PARTS = 3
"""Parts of a path elsewhere that are kept."""


def profile(loader: SwitchedLoader, options: ProfileOptions, budget_s: float, ledger: Ledger) -> None:
    """Profile the workers, or this process without workers, while the loader works alone; it rests afterwards.

    Args:
        loader: The running loader.
        options: Options for sampling.
        budget_s: Budget of the whole diagnosis, to which a tenth is added.
        ledger: Receives the evidence, the content of each file by its name, and warnings.
    """
    seconds = min(_MAX_S, max(_MIN_S, round(_BUDGET_SHARE * budget_s)))
    try:
        # Two recordings; py-spy knows whole seconds only.
        _Pass(loader, options, (seconds + 1) // 2, ledger).run(find_py_spy())
    except Exception as error:  # noqa: BLE001 - the measurements are worth more
        text = str(error).strip().partition("\n")[0].rstrip(".")
        ledger.warn(profile_failed(f"{type(error).__name__}: {text}"))


class _Pass:
    def __init__(self, loader: SwitchedLoader, options: ProfileOptions, seconds: int, ledger: Ledger) -> None:
        self._loader = loader
        self._options = options
        self._seconds = seconds
        self._ledger = ledger
        self._pids = loader.workers[:_MAX_WORKERS] or (os.getpid(),)
        self._in_workers = bool(loader.workers)
        self._files: dict[str, str] = {}

    def run(self, program: str | None) -> None:
        """Record twice: once for functions and speedscope, including threads that wait, and once for flamegraphs."""
        if program is None:
            self._ledger.warn(py_spy_missing())
            return
        if len(self._loader.workers) > len(self._pids):
            self._ledger.warn(profile_some_workers(len(self._pids)))
        self._loader.switch_real(modes.NAME_FRAMES)
        if not self._in_workers:
            allow_tracing()
        try:
            timelines = self._record(program, "speedscope", idle=True)
            if timelines:
                self._record(program, "flamegraph", idle=self._options.idle)
        finally:
            if not self._in_workers:
                allow_tracing(allowed=False)
        self._loader.rest()
        self._ledger.profile_files = self._files
        if timelines:
            self._ledger.note(profile=self._summarise(timelines))

    def _record(self, program: str, format: FileFormat, *, idle: bool) -> list[str]:
        options = PySpyOptions(
            format,
            self._seconds,
            self._options.rate_hz,
            native=self._options.native,
            idle=idle,
            # Stopped entirely, this process could not end a py-spy that hangs.
            pauses=self._in_workers,
        )
        found = record(program, self._pids, options, self._loader.next_batch, GRACE_S)
        written, failures = [], {}
        for worker, pid in enumerate(self._pids):
            if found[pid].failure:
                failures[worker] = found[pid].failure
            else:
                self._files[f"worker-{worker}.{_SUFFIXES[format]}"] = found[pid].text
                written.append(found[pid].text)
        if failures:
            why, missing = next(iter(failures.values())), list(failures) if written else []
            self._ledger.warn(py_spy_failed(why, missing, only_flamegraph=format != "speedscope"))
        return written

    def _summarise(self, timelines: list[str]) -> Profile:
        own, folder = count_own_samples(map(read_speedscope, timelines), other_threads=self._in_workers), Path.cwd()
        if not own:
            self._ledger.warn(profile_empty())
            return Profile()
        return Profile(
            sampler="py-spy",
            rate_hz=self._options.rate_hz,
            seconds=float(self._seconds),
            samples=own.total(),
            processes=len(timelines),
            in_workers=self._in_workers,
            functions=find_functions(own, folder, [span.name for span in self._ledger.ladder.spans]),
        )


# --- from stacks to functions -------------------------------------------------------------------------------


def read_speedscope(text: str) -> Stacks:
    """Return the stacks of all threads of one process, from py-spy's file for speedscope."""
    document = json.loads(text)
    frames = [(frame["name"], frame["file"] or "", frame["line"] or None) for frame in document["shared"]["frames"]]
    samples = (tuple(sample) for thread in document["profiles"] for sample in thread["samples"])
    return Counter({tuple(frames[at] for at in sample): count for sample, count in Counter(samples).items()})


def count_own_samples(processes: Iterable[Stacks], *, other_threads: bool) -> OwnSamples:
    """Count the samples of the user's code by its innermost function.

    Args:
        processes: Samples of processes.
        other_threads: True to include computing threads that the user's code started.
    """
    own: OwnSamples = Counter()
    for stacks in processes:
        for frames, count in stacks.items():
            kept, stage = _users_part(frames, other_threads)
            if kept:
                own[_innermost_named(kept), stage] += count
    return own


def _users_part(frames: tuple[Frame, ...], other_threads: bool) -> tuple[tuple[Frame, ...], str | None]:
    """Return the frames of the user's code, if any, and their stage."""
    stages = [
        (at, stage) for at, (name, file, _) in enumerate(frames) if (stage := stage_of_frame(name, file)) is not None
    ]
    if stages:
        inside = frames[stages[0][0] + 1 :]
        return tuple(frame for frame in inside if not is_ours(frame[1])), stages[-1][1] or None
    starts = [at for at, (name, _, _) in enumerate(frames) if name in _THREAD_STARTS]
    if not other_threads or not starts or any(_is_machinery(file) for _, file, _ in frames):
        return (), None
    in_python = [file for _, file, line in frames if line is not None]
    if in_python and _slashed(in_python[-1]).endswith(_THREAD_FILES):
        return (), None  # it waits for work
    return tuple(frame for frame in frames[starts[0] :] if not _slashed(frame[1]).endswith(_THREAD_FILES)), None


def _is_machinery(file: str) -> bool:
    return is_ours(file) or any(part in _slashed(file) for part in _MACHINERY)


def _slashed(file: str) -> str:
    return file.replace("\\", "/")


def _innermost_named(frames: tuple[Frame, ...]) -> Frame:
    """Return the innermost frame with a name. Native code without symbols counts for its caller."""
    return next((frame for frame in reversed(frames) if not _ADDRESS.fullmatch(frame[0])), frames[-1])


def find_functions(own: OwnSamples, working_folder: Path, stages: Collection[str] = ()) -> tuple[FunctionSeen, ...]:
    """Return the functions with the most own time first.

    Args:
        own: Their samples.
        working_folder: Folder for relative file names.
        stages: The measured stages; the work of others is part of one of them.
    """
    joined: OwnSamples = Counter()
    for ((name, file, line), stage), count in own.items():
        joined[(name, shorten(file, working_folder), line), stage and span_of(stage, stages)] += count
    found = [
        FunctionSeen(function=name, file=file, line=line, stage=stage, own_share=count / own.total())
        for ((name, file, line), stage), count in joined.items()
    ]
    found.sort(key=lambda spot: (-(spot.own_share or 0.0), spot.file or "", spot.line or 0, spot.function or ""))
    return tuple(found[:MAX_FUNCTIONS])


def shorten(file: str, working_folder: Path) -> str:
    """Shorten a file name so that it can be found but shows no home directory."""
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
    return home if len(home) > 1 else "~"  # in containers it may be the root, which contains all files
