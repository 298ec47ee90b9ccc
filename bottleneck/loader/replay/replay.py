"""Serve what was recorded at some sites of a dataset while its code runs, and let the others work for real."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from bottleneck.job import marks
from bottleneck.loader import trees
from bottleneck.loader.record.tape import Call, Function, Tape, copy_arguments


@dataclass(frozen=True)
class ReplayConfig:
    """How recorded calls are replayed.

    Attributes:
        served: Sites whose recorded outputs are served.
        real: Sites that work for real, and with them whatever they call.
        copy_outputs: Sites whose output is copied each time it is served, because later code changes it in place.
        restore_rng: Leave the random number generators as the real call would have left them.
        copy_arguments: Sites that change their arguments; where one works alone, it gets a copy of the recorded ones.
    """

    served: frozenset[str] = frozenset()
    real: frozenset[str] = frozenset()
    copy_outputs: frozenset[str] = frozenset()
    restore_rng: bool = False
    copy_arguments: frozenset[str] = frozenset()


class Replay:
    """Answers the calls made while one recorded sample is made again, or one batch is collated again.

    Everything that can be prepared is prepared here, once: a replay runs inside timed blocks, where each
    microsecond of ours would be taken for the user's.
    """

    def __init__(self, tape: Tape, calls: list[Call], config: ReplayConfig) -> None:
        self._tape, self._config = tape, config
        recorded: dict[str, list[Call]] = {}
        for call in calls:
            if call.site in config.served or call.site in config.real:
                recorded.setdefault(call.site, []).append(call)
        self._served = config.served & recorded.keys()
        self._ready = {
            site: found[0].output
            for site, found in recorded.items()
            if site in self._served and len(found) == 1 and not self._needs_care(found[0])
        }
        """Outputs that can be handed out as they are, whenever they are asked for."""
        # A site that is called more often than it was recorded gets its calls again from the first.
        self._recorded = [(site, found) for site, found in recorded.items() if site not in self._ready]
        self._next: dict[str, Iterator[Call]] = {}
        self._inside = False
        # Marks can be called anywhere; other cuts need no answer where marks are the only ones.
        cuts = any(not marks.is_mark(site) for site in (*config.served, *config.real))
        self._answer_cuts = self._answer if cuts else None

    def _needs_care(self, call: Call) -> bool:
        config = self._config
        draws = config.restore_rng and call.rng_after is not None
        return draws or bool(call.inner) or call.site in config.copy_outputs

    def run(self, function: Function, *args: Any) -> Any:
        """Call a function that runs the user's code, with this replay answering the cuts' calls."""
        tape = self._tape
        self._next = {site: cycle(calls) for site, calls in self._recorded}
        self._inside = False
        tape.handler, marks.handler = self._answer_cuts, self._answer
        try:
            return function(*args)
        finally:
            tape.handler = marks.handler = None

    def _answer(self, site: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Calls inside another cut were not recorded either.
        if self._inside:
            return function(*args, **kwargs)
        if site in self._ready:
            return self._ready[site]
        recorded = self._next.get(site)
        if recorded is None:
            return function(*args, **kwargs)
        call, config = next(recorded), self._config
        if site in self._served:
            if call.inner:
                self._run_inner(call)
            if config.restore_rng and call.rng_after is not None:
                call.rng_after.restore()
            output = trees.copy_deep(call.output) if site in config.copy_outputs else call.output
        else:
            self._inside = True
            try:
                output = function(*args, **kwargs)
            finally:
                self._inside = False
        return output

    def _run_inner(self, call: Call) -> None:
        """Let the marked stages inside a call that is served work, as they would have."""
        for inner in call.inner:
            if inner.site in self._served:
                self._run_inner(inner)
            else:
                inner.function(*inner.args, **inner.kwargs)

    def run_calls(self, calls: Collection[Call]) -> list[Any]:
        """Let recorded calls of marked stages, nested ones included, work alone on what they were called with.

        Returns:
            What each call gave; None for those that are served, and those within another.
        """
        nested = {id(inner) for call in calls for inner in call.inner}
        outputs: list[Any] = self.run(self._call_all, [None if id(call) in nested else call for call in calls])
        return outputs

    def _call_all(self, calls: list[Call | None]) -> list[Any]:
        return [None if call is None else self._call_alone(call) for call in calls]

    def _call_alone(self, call: Call) -> Any:
        if call.site in self._served:
            self._run_inner(call)
            return None
        args, kwargs = recorded_arguments(call, self._config.copy_arguments)
        return call.function(*args, **kwargs)


def recorded_arguments(call: Call, copied: Iterable[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a recorded call was called with; a copy for the sites that change it."""
    if call.site not in copied:
        return call.args, call.kwargs
    if marks.is_mark(call.site):
        return copy_arguments(call)
    return trees.copy_deep(call.args), trees.copy_deep(call.kwargs)
