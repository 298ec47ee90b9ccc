"""The pass of profiling: py-spy's own files of each worker, and the functions with the most own time.

It comes after the timed rounds, since a profiler stops the process for each sample. Nothing that goes wrong here costs
the diagnosis.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bottleneck.loader import modes
from bottleneck.loader.switched_loader import SwitchedLoader
from bottleneck.loader.worker.ptrace import allow_tracing, forbid_tracing
from bottleneck.measure.options import ProfileOptions
from bottleneck.measure.passes.pyspy import GRACE_S, FileFormat, PySpyOptions, find_py_spy, record
from bottleneck.measure.passes.stacks import count_own_samples, find_functions, read_speedscope
from bottleneck.results.evidence import Profile

_BUDGET_SHARE = 0.1
_SHORTEST_S, _LONGEST_S = 2, 4
_MOST_WORKERS = 16
"""Processes that are profiled at once; the workers of one job do the same."""
_SUFFIXES: dict[FileFormat, str] = {"speedscope": "speedscope.json", "flamegraph": "svg"}


@dataclass(frozen=True)
class ProfileResult:
    """What the workers' code does, as far as it could be sampled."""

    evidence: Profile = field(default_factory=Profile)
    files: Mapping[str, str] = field(default_factory=dict)
    """The content of each file by its name, such as `worker-0.svg`."""
    warnings: tuple[tuple[str, str], ...] = ()
    """(id, message) of what went otherwise than asked for."""


def profile(
    loader: SwitchedLoader, options: ProfileOptions, budget_s: float, stages: Collection[str] = ()
) -> ProfileResult:
    """Profile the workers, or this process where there are none, while the loader works alone; it rests afterwards.

    Args:
        loader: The running loader.
        options: How to sample.
        budget_s: Of the whole diagnosis; a tenth of it comes on top.
        stages: The stages that are measured; the work of others is part of one of them.
    """
    seconds = min(_LONGEST_S, max(_SHORTEST_S, round(_BUDGET_SHARE * budget_s)))
    try:
        # Two recordings; py-spy knows whole seconds only.
        return _Pass(loader, options, (seconds + 1) // 2, stages).run(find_py_spy())
    except Exception as error:  # noqa: BLE001 - what was measured is worth more
        text = str(error).strip().partition("\n")[0].rstrip(".")
        return ProfileResult(warnings=(("profile-failed", f"There is no profile ({type(error).__name__}: {text})."),))


class _Pass:
    def __init__(self, loader: SwitchedLoader, options: ProfileOptions, seconds: int, stages: Collection[str]) -> None:
        self._loader, self._options, self._seconds, self._stages = loader, options, seconds, stages
        self._pids = loader.workers[:_MOST_WORKERS] or (os.getpid(),)
        self._in_workers = bool(loader.workers)
        self._files: dict[str, str] = {}
        self._warnings: list[tuple[str, str]] = []

    def run(self, program: str | None) -> ProfileResult:
        """Record twice: once for functions and speedscope, threads that wait included, and once for flamegraphs."""
        if program is None:
            return ProfileResult(warnings=(("profile-failed", "py-spy is not installed; pip install py-spy."),))
        if len(self._loader.workers) > len(self._pids):
            self._warn("profile-some-workers", f"Only the first {len(self._pids)} workers were profiled.")
        self._loader.switch_real(modes.NAME_FRAMES)
        if not self._in_workers:
            allow_tracing()
        try:
            timelines = self._record(program, "speedscope", idle=True)
            if timelines:
                self._record(program, "flamegraph", idle=self._options.idle)
        finally:
            if not self._in_workers:
                forbid_tracing()
        self._loader.rest()
        evidence = self._summarise(timelines) if timelines else Profile()
        return ProfileResult(evidence, self._files, tuple(self._warnings))

    def _record(self, program: str, format: FileFormat, *, idle: bool) -> list[str]:
        options = PySpyOptions(
            format,
            self._seconds,
            self._options.rate_hz,
            native=self._options.native,
            idle=idle,
            # Stopped altogether, this process could not end a py-spy that hangs.
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
            what = "nothing" if format == "speedscope" else "no flamegraph"
            of = f" of worker {', '.join(map(str, failures))}" if written else ""
            self._warn("profile-failed", f"py-spy gave {what}{of}: {next(iter(failures.values()))}.")
        return written

    def _summarise(self, timelines: list[str]) -> Profile:
        own, folder = count_own_samples(map(read_speedscope, timelines), other_threads=self._in_workers), Path.cwd()
        if not own:
            self._warn("profile-empty", "The profile is empty: no sample fell into the code of the dataset.")
            return Profile()
        return Profile(
            sampler="py-spy",
            rate_hz=self._options.rate_hz,
            seconds=float(self._seconds),
            samples=own.total(),
            processes=len(timelines),
            in_workers=self._in_workers,
            functions=find_functions(own, folder, self._stages),
        )

    def _warn(self, id_: str, message: str) -> None:
        self._warnings.append((id_, message))
