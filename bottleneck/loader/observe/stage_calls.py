"""Which stage the user's code works for, call by call: the same question for what is timed and for what is profiled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from bottleneck.job.marks import is_mark, name_of
from bottleneck.loader.record.plan import Plan
from bottleneck.loader.record.tape import Function, Tape

RunIn = Callable[[str, Function, tuple[Any, ...], dict[str, Any]], Any]
"""Calls a function in a stage."""
_BASE_STAGES = {"template": "load", "marks": "other", "fetch": "fetch"}


class StageCalls:
    """The calls of one piece of work, such as an item, in the thread that does it; of marks, only those given count."""

    def __init__(self, tape: Tape, plan: Plan, marked: Iterable[str] = ()) -> None:
        self._tape, self._plan, self._marked = tape, plan, frozenset(marked)
        self._thread = threading.get_ident()
        self.inside_cut = False
        """A cut that is no marked stage is at work; what it calls belongs to it."""

    @property
    def elsewhere(self) -> bool:
        """Whether this is another thread: what it does cannot be separated from what goes on beside it."""
        return threading.get_ident() != self._thread

    def run(self, site: str, run_in: RunIn, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call what stands at a site, in the stage that it belongs to."""
        stage = self.stage_of(site)
        if stage is None:
            return function(*args, **kwargs)
        if is_mark(site):
            return run_in(stage, function, args, kwargs)
        self.inside_cut = True
        try:
            return run_in(stage, function, args, kwargs)
        finally:
            self.inside_cut = False

    def stage_of(self, site: str) -> str | None:
        """The stage that a call belongs to; None if it belongs to the one at work."""
        if self.elsewhere:
            return None
        if is_mark(site):
            return name_of(site) if site in self._marked else None
        return None if self.inside_cut or site not in self._plan.sites else self._tape.stage(site)


def base_stage(plan: Plan) -> str:
    """Return the stage of the code outside all cuts."""
    return _BASE_STAGES.get(plan.strategy, plan.within_sample[0])
