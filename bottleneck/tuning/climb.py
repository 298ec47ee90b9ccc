"""Which change is tried next, and on top of what: pure logic, which knows nothing of pipelines and clocks.

Up the steepest side first: each change on top of the best so far, and what was kept lifts all the others to another
try, because each fix uncovers the next bottleneck. Where no single change pays any more, those that did no harm are
tried together: in a job whose input and step are equally fast, neither alone gains anything, and both together do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bottleneck.results.tuning import Outcome
from bottleneck.tuning.change import Change, Setting, Settings, labels, with_settings, without_change

_HARMLESS = 0.97
"""The factor from which on a change may be tried together with others."""


@dataclass(frozen=True)
class Attempt:
    """What is to be measured: the job with some settings, against the job with others."""

    base: Settings
    changed: Settings
    tried: Settings
    """What is in doubt."""


@dataclass(frozen=True)
class Verdict:
    """What became of an attempt."""

    outcome: Outcome
    factor: float | None = None
    """Of throughput, as it is estimated."""
    lacked_memory: bool = False
    """It failed for want of memory, which another change may save."""


Steps = Generator[Attempt, Verdict, bool]
Propose = Callable[[Change, Settings, Mapping[Any, Outcome]], Setting | None]


class Climb:
    """Climbs from the job as it is.

    Args:
        changes: What may be tried.
        propose: The next setting of a change on top of settings, from what became of its values there.
        by_promise: Sorts changes, the most promising first; asked before each pass over them.
    """

    def __init__(
        self, changes: Sequence[Change], propose: Propose, by_promise: Callable[[Sequence[Change]], Iterable[Change]]
    ) -> None:
        self._changes, self._propose, self._by_promise = changes, propose, by_promise
        self._judged: dict[tuple[Change, Settings], dict[Any, Verdict]] = {}
        self._failed: dict[Change, dict[Any, Verdict]] = {}
        self._tried_together: set[tuple[Settings, Settings]] = set()
        self.best: Settings = ()
        self.rungs: list[Settings] = []
        """What each step up has added."""

    def steps(self) -> Steps:
        """Yield what to measure, and take what it showed, until nothing is left to try."""
        while True:
            kept = False
            for change in self._by_promise(self._changes):
                kept = (yield from self._try_values(change)) or kept
            if not kept and not (yield from self._try_together()):
                return True

    def _try_values(self, change: Change) -> Steps:
        kept = False
        while True:
            setting = self.next_of(change)
            if setting is None:
                return kept
            changed = with_settings(self.best, (setting,))
            verdict = yield Attempt(self.best, changed, (setting,))
            self._note(setting, verdict)
            if verdict.outcome == "kept":
                self._step_up(changed, (setting,))
                kept = True

    def next_of(self, change: Change) -> Setting | None:
        """What of a change is to be tried next on the present best, if anything."""
        outcomes = {value: verdict.outcome for value, verdict in self._judged_here(change).items()}
        setting = self._propose(change, self.best, outcomes)
        return None if setting in self.best else setting

    def _judged_here(self, change: Change) -> dict[Any, Verdict]:
        """What became of a change's values on the other settings of the best; what failed is not tried elsewhere."""
        here = self._judged.get((change, without_change(self.best, change)), {})
        return {**self._failed.get(change, {}), **here}

    def _note(self, setting: Setting, verdict: Verdict) -> None:
        others = without_change(self.best, setting.change)
        self._judged.setdefault((setting.change, others), {})[setting.value] = verdict
        if verdict.outcome == "failed" and not verdict.lacked_memory:
            self._failed.setdefault(setting.change, {})[setting.value] = verdict

    def _step_up(self, changed: Settings, tried: Settings) -> None:
        self.best = changed
        same = self.rungs and [s.change for s in self.rungs[-1]] == [s.change for s in tried]
        if same:  # another value of what was kept last is no step of its own
            self.rungs[-1] = tried
        else:
            self.rungs.append(tried)

    # --- what pays only together -----------------------------------------------------------------------------

    def _try_together(self) -> Steps:
        chosen = tuple(filter(None, map(self._harmless, self._changes)))
        if len(chosen) < 2 or (self.best, chosen) in self._tried_together:
            return False
        self._tried_together.add((self.best, chosen))
        verdict = yield Attempt(self.best, with_settings(self.best, chosen), chosen)
        if verdict.outcome != "kept":
            return False
        needed = yield from self._needed(chosen)
        self._step_up(with_settings(self.best, needed), needed)
        return True

    def _harmless(self, change: Change) -> Setting | None:
        """The value of a change that did best on the present job, where it neither paid nor did harm."""
        judged = {
            value: verdict.factor
            for value, verdict in self._judged_here(change).items()
            if verdict.outcome in ("dropped", "undecided") and verdict.factor is not None
        }
        value, factor = max(judged.items(), key=lambda item: item[1], default=(None, 0.0))
        return Setting(change, value) if factor >= _HARMLESS else None

    def _needed(self, chosen: Settings) -> Generator[Attempt, Verdict, Settings]:
        """Leave out, one after the other, what the others do as well without; what alters numbers goes first."""
        needed = chosen
        for setting in sorted(chosen, key=lambda s: s.change.alters == "nothing"):
            fewer = tuple(other for other in needed if other is not setting)
            if not fewer:
                break
            base, changed = with_settings(self.best, fewer), with_settings(self.best, needed)
            verdict = yield Attempt(base, changed, (setting,))
            if verdict.outcome != "kept":
                needed = fewer
        return needed


def describe(tried: Settings) -> str:
    """What was tried, for people."""
    return " + ".join(labels(tried))
