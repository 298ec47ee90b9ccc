"""Serve what was recorded at some sites of a dataset while its code runs, and let the others work for real."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from bottleneck.job import marks
from bottleneck.loader import trees
from bottleneck.loader.record.tape import Call, Function, Tape
from bottleneck.loader.worker_errors import PassesThrough


class StopAfterCut(PassesThrough):
    """Leaves `__getitem__` after its last cut, so that the code behind it does not run."""


@dataclass(frozen=True)
class Playback:
    """How a replay is done.

    Attributes:
        replayed: Sites whose recorded outputs are served.
        real: Sites that work for real, but whose calls are counted; those of others pass through.
        stop_after_augment: Raise `StopAfterCut` after the last call of the augmentation.
        copy_outputs: Serve a fresh copy each time, because later code changes it in place.
        restore_rng: Leave the random number generators as the real call would have left them.
        recorded_arguments: Real calls get their recorded arguments instead of those that they are given.
        copy_arguments: Sites that change their arguments, and so get a copy of the recorded ones.
    """

    replayed: frozenset[str] = frozenset()
    real: frozenset[str] = frozenset()
    stop_after_augment: bool = False
    copy_outputs: bool = True
    restore_rng: bool = False
    recorded_arguments: bool = False
    copy_arguments: frozenset[str] = frozenset()


class Replay:
    """Answers the calls made while one recorded unit runs again.

    Everything that can be prepared is prepared here, once: a replay runs inside timed blocks, where each
    microsecond of ours would be taken for the user's.

    Args:
        tape: The tape of the dataset's cuts.
        calls: What was recorded.
        play: How it is replayed.
    """

    def __init__(self, tape: Tape, calls: list[Call], play: Playback) -> None:
        self._tape, self._play = tape, play
        recorded: dict[str, list[Call]] = {}
        for call in calls:
            if call.site in play.replayed or call.site in play.real:
                recorded.setdefault(call.site, []).append(call)
        self._augment_sites = {site for site in recorded if tape.stage(site) == "augment"}
        self._augment_calls = sum(call.site in self._augment_sites for call in calls)
        self._ready = {
            site: found[0].output
            for site, found in recorded.items()
            if site in play.replayed and len(found) == 1 and not self._needs_care(site)
        }
        """Outputs that can be handed out as they are, whenever they are asked for."""
        # A site that is called more often than it was recorded gets its calls again from the first.
        self._recorded = [(site, found) for site, found in recorded.items() if site not in self._ready]
        self._next: dict[str, Iterator[Call]] = {}
        self._left = 0
        self._inside = False

    def _needs_care(self, site: str) -> bool:
        play = self._play
        counts = play.stop_after_augment and site in self._augment_sites
        return play.copy_outputs or play.restore_rng or counts

    def run(self, function: Function, *args: Any) -> Any:
        """Call a function that runs the user's code, with this replay answering the cuts' calls."""
        tape = self._tape
        self._next = {site: cycle(calls) for site, calls in self._recorded}
        self._left, self._inside = self._augment_calls, False
        tape.handler = self._answer
        try:
            return function(*args)
        finally:
            tape.handler = None

    def _answer(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Calls inside another cut were not recorded either.
        if self._inside:
            return function(*args, **kwargs)
        if site in self._ready:
            return self._ready[site]
        recorded = self._next.get(site)
        if recorded is None:
            return function(*args, **kwargs)
        call, play = next(recorded), self._play
        if site in play.replayed:
            if play.restore_rng and call.rng_after is not None:
                call.rng_after.restore()
            output = trees.copy_deep(call.output) if play.copy_outputs else call.output
        else:
            if play.recorded_arguments:
                args, kwargs = recorded_arguments(call, play.copy_arguments)
            self._inside = True
            try:
                output = function(*args, **kwargs)
            finally:
                self._inside = False
        if play.stop_after_augment and site in self._augment_sites:
            self._left -= 1
            if self._left == 0:
                raise StopAfterCut
        return output


def recorded_arguments(call: Call, copied: Iterable[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a recorded call was called with; a copy for the sites that change it."""
    if call.site in copied:
        return trees.copy_deep(call.args), trees.copy_deep(call.kwargs)
    return call.args, call.kwargs


class MarkReplay:
    """Serves the recorded outputs of some marked stages while the user's code runs; the others work for real.

    Args:
        recorded: Site -> its recorded calls, for the stages that are skipped.
        copied: Sites whose output later code changes in place, so that each serving needs a copy.
    """

    def __init__(self, recorded: Mapping[str, list[Call]], copied: frozenset[str]) -> None:
        self._skipped = recorded.keys()
        self._recorded: list[tuple[str, list[Call], bool]] = []
        self._ready: dict[str, Any] = {}
        """Outputs that can be handed out as they are, whenever they are asked for."""
        for site, calls in recorded.items():
            name, first = site.removeprefix("@"), calls[0]
            if len(calls) == 1 and site not in copied and not first.inner and first.rng_after is None:
                self._ready[name] = first.output
            else:
                self._recorded.append((name, calls, site in copied))
        self._next: dict[str, tuple[Iterator[Call], bool]] = {}

    def run(self, function: Function, *args: Any) -> Any:
        """Call a function that runs the user's code, with this replay answering the calls of marked stages."""
        self._next = {name: (cycle(calls), copied) for name, calls, copied in self._recorded}
        marks.handler = self._answer
        try:
            return function(*args)
        finally:
            marks.handler = None

    def _answer(self, name: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in self._ready:
            return self._ready[name]
        found = self._next.get(name)
        if found is None:
            return function(*args, **kwargs)
        call = next(found[0])
        if call.inner:
            self._run_inner(call)
        if call.rng_after is not None:  # while it is checked; not when it is measured
            call.rng_after.restore()
        return trees.copy_deep(call.output) if found[1] else call.output

    def _run_inner(self, call: Call) -> None:
        """Let the stages inside a skipped one work, as they would have."""
        for inner in call.inner:
            if inner.site in self._skipped:
                self._run_inner(inner)
            else:
                inner.function(*inner.args, **inner.kwargs)

    def run_calls(self, calls: Iterable[Call], copied: frozenset[str]) -> None:
        """Let the marked stages of a unit work without the code around them, on what they were called with.

        Args:
            calls: The recorded calls, nested ones among them.
            copied: Sites that change their arguments, and so get a copy.
        """
        nested = {id(inner) for call in calls for inner in call.inner}
        top = [call for call in calls if id(call) not in nested]
        self.run(self._call_all, top, copied)

    def _call_all(self, calls: list[Call], copied: frozenset[str]) -> None:
        for call in calls:
            if call.site in self._skipped:
                self._run_inner(call)
                continue
            args, kwargs = recorded_arguments(call, copied)
            call.function(*args, **kwargs)
