"""Order in which changes are tried, and on top of which others: logic that knows no pipelines and no clocks.

The steepest side comes first: each change is tried on top of the best so far, and whenever one is kept all others get
another try, because each fix uncovers the next bottleneck. If no single change pays any longer, the harmless ones are
tried together, unless all are to the input: in a job whose input and step are equally fast, neither alone gains
anything, and both together do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bottleneck.results.tuning import Outcome
from bottleneck.tuner.change import Change, Setting, Settings, with_settings

_HARMLESS = 0.97
"""Minimum factor of throughput for a change to be tried together with others."""


class OutOfTime(Exception):
    """Not enough time is left for another attempt."""


@dataclass(frozen=True)
class Verdict:
    """Outcome of an attempt."""

    outcome: Outcome
    factor: float | None = None
    """Estimated factor of throughput."""
    lacked_memory: bool = False
    """True if it failed for lack of memory, which another change may save."""


Propose = Callable[[Change, Settings, Mapping[Any, Verdict]], Setting | None]
Measure = Callable[[Settings, Settings, Settings], Verdict]


class Climb:
    """Greedy search from the original job.

    Args:
        changes: Changes that may be tried.
        propose: Returns the next setting of a change on top of settings, from the verdicts on its values there.
        by_promise: Sorts changes, the most promising first; called before each pass over them.
        measure: Measures settings against other settings, given those that are in doubt; raises OutOfTime.
        advised: Returns settings that the diagnosis advises together, which are tried first: each of them alone may do
            harm.
    """

    def __init__(
        self,
        changes: Sequence[Change],
        propose: Propose,
        by_promise: Callable[[Sequence[Change]], Iterable[Change]],
        measure: Measure,
        advised: Callable[[], Settings] = tuple,
    ) -> None:
        self._changes = changes
        self._propose = propose
        self._by_promise = by_promise
        self._measure = measure
        self._advised = advised
        self._judged: dict[tuple[Change, Settings], dict[Any, Verdict]] = {}
        """Verdicts by change and the other settings at that time."""
        self._failed: dict[Change, dict[Any, Verdict]] = {}
        """Failures that hold with any other settings."""
        self.best: Settings = ()
        self.rungs: list[Settings] = []
        """Settings added by each step up."""

    def run(self) -> None:
        """Try changes until nothing is left, or there is no time."""
        with suppress(OutOfTime):
            self._keep_together(self._advised())
            while self._try_each() or self._try_together():
                pass

    def _try_each(self) -> bool:
        """Try the values of each change; return True if any was kept."""
        before = self.best
        for change in self._by_promise(self._changes):
            while (setting := self.next_of(change)) is not None:
                others = self._others(setting.change)
                verdict = self._measure(self.best, with_settings(self.best, (setting,)), (setting,))
                self._judged.setdefault((setting.change, others), {})[setting.value] = verdict
                if verdict.outcome == "failed" and not verdict.lacked_memory:
                    self._failed.setdefault(setting.change, {})[setting.value] = verdict
                if verdict.outcome == "kept":
                    self._step_up((setting,))
        return self.best != before

    def next_of(self, change: Change) -> Setting | None:
        """Return the next setting of a change to try on the present best; None if there is none."""
        setting = self._propose(change, self.best, self._judged_here(change))
        return None if setting in self.best else setting

    def _judged_here(self, change: Change) -> dict[Any, Verdict]:
        """Return the verdicts on a change's values with the other settings of the best."""
        return {**self._failed.get(change, {}), **self._judged.get((change, self._others(change)), {})}

    def _others(self, change: Change) -> Settings:
        return tuple(setting for setting in self.best if setting.change is not change)

    def _step_up(self, added: Settings) -> None:
        self.best = with_settings(self.best, added)
        if self.rungs and [s.change for s in self.rungs[-1]] == [s.change for s in added]:
            self.rungs.pop()  # another value of the change that was kept last is not a separate step
        self.rungs.append(added)

    # --- changes that pay only together ----------------------------------------------------------------------

    def _try_together(self) -> bool:
        """Try the harmless changes together; return True if that was kept."""
        chosen = self._harmless()
        return not all(setting.change.input_only for setting in chosen) and self._keep_together(chosen)

    def _keep_together(self, chosen: Settings) -> bool:
        """Try some changes together, and keep those that are needed; return True if any was kept."""
        if len(chosen) < 2:
            return False
        base, together = self.best, with_settings(self.best, chosen)
        if self._measure(base, together, chosen).outcome != "kept":
            return False
        needed = chosen
        try:
            # Drop those that the others can do without; changes that alter numbers go first.
            for setting in sorted(chosen, key=lambda s: s.change.alters == "nothing"):
                fewer = tuple(other for other in needed if other is not setting)
                without, whole = with_settings(base, fewer), with_settings(base, needed)
                if fewer and self._measure(without, whole, (setting,)).outcome != "kept":
                    needed = fewer
        finally:
            self._step_up(needed)
        return True

    def _harmless(self) -> Settings:
        """Return the best value of each change that neither paid nor did harm on the present job."""
        chosen: list[Setting] = []
        for change in self._changes:
            factors = {
                value: verdict.factor
                for value, verdict in self._judged_here(change).items()
                if verdict.outcome in ("dropped", "undecided") and verdict.factor is not None
            }
            value, factor = max(factors.items(), key=lambda item: item[1], default=(None, 0.0))
            if factor >= _HARMLESS:
                chosen.append(Setting(change, value))
        return tuple(chosen)
