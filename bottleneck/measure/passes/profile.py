"""The pass of profiling: what the workers' code does, function by function.

It comes after the timed rounds, since a profiler stops the process for each sample. Nothing that goes wrong here costs
the diagnosis.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bottleneck.loader import modes
from bottleneck.loader.switched_loader import SwitchedLoader
from bottleneck.loader.worker.ptrace import allow_tracing, forbid_tracing
from bottleneck.measure.options import ProfileOptions
from bottleneck.measure.passes.pyspy import GRACE_S, PySpyOptions, PySpyOutput, find_py_spy, record
from bottleneck.measure.passes.stacks import RawStack, cut_stacks, from_sampler, join_passes, parse_collapsed
from bottleneck.results.stacks import SamplerName, StackProfile, WorkerStacks

_BUDGET_SHARE = 0.1
_SHORTEST_S, _LONGEST_S = 2, 4
_MOST_WORKERS = 16
"""Processes that are profiled at once; the workers of one job are alike."""


@dataclass(frozen=True)
class ProfileResult:
    """What the workers' code does, as far as it could be sampled."""

    profile: StackProfile | None
    """None if no sample fell into the user's code."""
    warnings: tuple[tuple[str, str], ...] = ()
    """(id, message) of what went otherwise than asked for."""


def profile_seconds(budget_s: float) -> int:
    """How long both passes together sample, in whole seconds; it comes on top of the budget."""
    return min(_LONGEST_S, max(_SHORTEST_S, round(_BUDGET_SHARE * budget_s)))


def profile(
    loader: SwitchedLoader,
    options: ProfileOptions,
    budget_s: float,
    clock: Callable[[], float],
) -> ProfileResult:
    """Profile the workers, or this process where there are none, while the loader works alone; it rests afterwards.

    Args:
        loader: The running loader.
        options: How to sample.
        budget_s: Of the whole diagnosis.
        clock: Seconds from any beginning.
    """
    try:
        return _Pass(loader, options, profile_seconds(budget_s), clock).run(find_py_spy())
    except Exception as error:  # noqa: BLE001 - what was measured is worth more
        text = str(error).strip().partition("\n")[0].rstrip(".")
        return ProfileResult(None, (("profile-failed", f"There is no profile ({type(error).__name__}: {text})."),))


class _Pass:
    def __init__(
        self, loader: SwitchedLoader, options: ProfileOptions, seconds: int, clock: Callable[[], float]
    ) -> None:
        self._loader, self._options, self._seconds, self._clock = loader, options, seconds, clock
        self._pids = loader.workers[:_MOST_WORKERS] or (os.getpid(),)
        self._in_workers = bool(loader.workers)
        self._warnings: list[tuple[str, str]] = []

    @property
    def _pass_s(self) -> int:
        """How long each of py-spy's two passes samples; it knows whole seconds only."""
        return (self._seconds + 1) // 2

    def run(self, program: str | None) -> ProfileResult:
        """Profile from outside, or if that is not possible from inside."""
        if len(self._loader.workers) > len(self._pids):
            self._warn("profile-some-workers", f"Only the first {len(self._pids)} workers were profiled.")
        found = self._from_outside(program)
        profiled = (
            self._profiled(found, "py-spy", self._pass_s)
            if found
            else self._profiled(self._from_inside(), "in-process", self._seconds)
        )
        self._loader.rest()
        return profiled

    def _profiled(self, found: dict[int, list[RawStack]], sampler: SamplerName, seconds: int) -> ProfileResult:
        folder = Path.cwd()
        workers = tuple(
            WorkerStacks(worker, cut_stacks(stacks, folder, other_threads=self._in_workers, idle=self._options.idle))
            for worker, stacks in sorted(found.items())
        )
        if not any(worker.stacks for worker in workers):
            self._warn("profile-empty", "The profile is empty: no sample fell into the code of the dataset.")
            return ProfileResult(None, tuple(self._warnings))
        made = StackProfile(sampler, self._options.rate_hz, float(seconds), workers, self._in_workers)
        return ProfileResult(made, tuple(self._warnings))

    def _warn(self, id_: str, message: str) -> None:
        self._warnings.append((id_, message))

    # --- from outside --------------------------------------------------------------------------------------

    def _from_outside(self, program: str | None) -> dict[int, list[RawStack]]:
        """Return the stacks that py-spy saw, by worker; none if it saw none."""
        if program is None:
            self._warn_of_py_spy("is not installed; pip install py-spy")
            return {}
        self._loader.switch_real(modes.NAME_FRAMES)
        if not self._in_workers:
            allow_tracing()
        try:
            all_threads = self._record(program, idle=True)
            if all(one.failure for one in all_threads.values()):
                self._warn_of_py_spy(f"gave nothing: {next(iter(all_threads.values())).failure}")
                return {}
            busy = self._record(program, idle=False)
        finally:
            if not self._in_workers:
                forbid_tracing()
        return self._join(all_threads, busy)

    def _record(self, program: str, *, idle: bool) -> dict[int, PySpyOutput]:
        options = PySpyOptions(
            self._pass_s,
            self._options.rate_hz,
            native=self._options.native,
            idle=idle,
            # Stopped altogether, this process could not end a py-spy that hangs.
            pauses=self._in_workers,
        )
        return record(program, self._pids, options, self._loader.next_batch, GRACE_S)

    def _join(self, all_threads: dict[int, PySpyOutput], busy: dict[int, PySpyOutput]) -> dict[int, list[RawStack]]:
        found: dict[int, list[RawStack]] = {}
        for worker, pid in enumerate(self._pids):
            if all_threads[pid].failure:
                self._warn("profile-worker", f"py-spy gave nothing of worker {worker}: {all_threads[pid].failure}.")
                continue
            seen = parse_collapsed(all_threads[pid].text)
            if busy[pid].failure:
                found[worker] = seen
            else:
                found[worker] = join_passes(seen, parse_collapsed(busy[pid].text))
        return found

    def _warn_of_py_spy(self, what: str) -> None:
        self._warn(
            "profile-in-process",
            f"py-spy {what}. The profile comes from a sampler inside the workers instead, which sees Python frames "
            "only, and those only between the calls that hold the interpreter's lock.",
        )

    # --- from inside ---------------------------------------------------------------------------------------

    def _from_inside(self) -> dict[int, list[RawStack]]:
        self._loader.switch_real(modes.NAME_FRAMES | modes.SAMPLE_STACKS)
        started_s = self._clock()
        while self._clock() - started_s < self._seconds:
            self._loader.next_batch()
        self._loader.rest()
        # Each worker leaves what it saw when it begins a batch in the next mode.
        for _ in range(max(1, self._loader.num_workers)):
            self._loader.next_batch()
        return {worker: from_sampler(sampled) for worker, sampled in self._loader.stacks().items()}
