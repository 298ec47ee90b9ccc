"""Which change is tried next, on top of what, and whether it is kept: logic that knows no pipelines and no clocks.

Up the steepest side first: each change on top of the best so far, and what was kept lifts all the others to another
try, because each fix uncovers the next bottleneck. Where no single change pays any more, those that did no harm are
tried together, unless all are to the input: in a job whose input and step are equally fast, neither alone gains
anything, and both together do.

A change is judged by pairs of blocks, seconds apart, so that what else the machine does cancels in their ratio, unless
it hits one of the two: the mean is trimmed by a fifth at each end, with the interval of Tukey and McLaughlin (1963).
What was kept is measured again with all that it does, stalls included, when the ladder is. Pairs are looked at a few
times only, and strictly: each look is a chance to be fooled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from bottleneck.analysis.statistics import FloatArray
from bottleneck.results.records import Block, Interval
from bottleneck.results.tuning import Outcome, Pair
from bottleneck.tuner.change import Change, Setting, Settings, with_settings

_HARMLESS = 0.97
"""The factor from which on a change may be tried together with others."""


class OutOfTime(Exception):
    """There is no time left for another attempt."""


@dataclass(frozen=True)
class Verdict:
    """What became of an attempt."""

    outcome: Outcome
    factor: float | None = None
    """Of throughput, as it is estimated."""
    lacked_memory: bool = False
    """It failed for want of memory, which another change may save."""


Propose = Callable[[Change, Settings, Mapping[Any, Verdict]], Setting | None]
Measure = Callable[[Settings, Settings, Settings], Verdict]


class Climb:
    """Climbs from the job as it is.

    Args:
        changes: What may be tried.
        propose: The next setting of a change on top of settings, from what became of its values there.
        by_promise: Sorts changes, the most promising first; asked before each pass over them.
        measure: Measures the job with some settings against the job with others, of which some are in doubt; raises
            OutOfTime.
        advised: Settings that the diagnosis advises as one, which go first: each of them alone may do harm.
    """

    def __init__(
        self,
        changes: Sequence[Change],
        propose: Propose,
        by_promise: Callable[[Sequence[Change]], Iterable[Change]],
        measure: Measure,
        advised: Callable[[], Settings] = tuple,
    ) -> None:
        self._changes, self._propose, self._by_promise, self._measure = changes, propose, by_promise, measure
        self._advised = advised
        self._judged: dict[tuple[Change, Settings], dict[Any, Verdict]] = {}
        self._failed: dict[Change, dict[Any, Verdict]] = {}
        """Whatever else the job has."""
        self.best: Settings = ()
        self.rungs: list[Settings] = []
        """What each step up has added."""

    def run(self) -> None:
        """Try until nothing is left, or there is no time."""
        with suppress(OutOfTime):
            self._keep_together(self._advised())
            while self._try_each() or self._try_together():
                pass

    def _try_each(self) -> bool:
        """Try the values of each change; return whether any was kept."""
        before = self.best
        for change in self._by_promise(self._changes):
            while (setting := self.next_of(change)) is not None:
                changed = with_settings(self.best, (setting,))
                verdict = self._measure(self.best, changed, (setting,))
                self._note(setting, verdict)
                if verdict.outcome == "kept":
                    self._step_up((setting,))
        return self.best != before

    def next_of(self, change: Change) -> Setting | None:
        """What of a change is to be tried next on the present best, if anything."""
        setting = self._propose(change, self.best, self._judged_here(change))
        return None if setting in self.best else setting

    def _judged_here(self, change: Change) -> dict[Any, Verdict]:
        """What became of a change's values on the other settings of the best."""
        return {**self._failed.get(change, {}), **self._judged.get((change, self._others(change)), {})}

    def _others(self, change: Change) -> Settings:
        return tuple(setting for setting in self.best if setting.change is not change)

    def _note(self, setting: Setting, verdict: Verdict) -> None:
        self._judged.setdefault((setting.change, self._others(setting.change)), {})[setting.value] = verdict
        if verdict.outcome == "failed" and not verdict.lacked_memory:
            self._failed.setdefault(setting.change, {})[setting.value] = verdict

    def _step_up(self, added: Settings) -> None:
        self.best = with_settings(self.best, added)
        if self.rungs and [s.change for s in self.rungs[-1]] == [s.change for s in added]:
            self.rungs.pop()  # another value of what was kept last is no step of its own
        self.rungs.append(added)

    # --- what pays only together -----------------------------------------------------------------------------

    def _try_together(self) -> bool:
        chosen = tuple(filter(None, map(self._harmless, self._changes)))
        return not all(setting.change.input_only for setting in chosen) and self._keep_together(chosen)

    def _keep_together(self, chosen: Settings) -> bool:
        if len(chosen) < 2:
            return False
        base, together = self.best, with_settings(self.best, chosen)
        if self._measure(base, together, chosen).outcome != "kept":
            return False
        needed = chosen
        try:
            # Leave out what the others do as well without; what alters numbers goes first.
            for setting in sorted(chosen, key=lambda s: s.change.alters == "nothing"):
                fewer = tuple(other for other in needed if other is not setting)
                without, whole = with_settings(base, fewer), with_settings(base, needed)
                if fewer and self._measure(without, whole, (setting,)).outcome != "kept":
                    needed = fewer
        finally:
            self._step_up(needed)
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


# --- what is kept -------------------------------------------------------------------------------------------

WORTH = 1.02
"""The factor of throughput that a change has to gain, surely, to be kept."""
_PROMISING = 1.01
"""The factor that half of the pairs have to reach for more of them to be measured."""
FEWEST_PAIRS, _MOST_PAIRS = 4, 24
_LOOKS = (4, 6, 8, 10, 13, 16, 20)
_SURE = 0.99
"""Confidence of what is kept."""
_HARDLY = 0.9
"""Confidence of what is dropped: to lose a change costs its gain only."""
_FEW_PAIRS, _HOPELESS, _LARGE = 3, 0.85, 1.5
"""Where no pair has a larger factor, or each has one, fewer pairs settle it."""
_ALIKE = 0.1
"""So do pairs that promise nothing and differ by less than this: none of them was disturbed."""
_TRIMMED = 0.2
_WIDEST = 50.0
"""Of a logarithm: two pairs that disagree have an interval over many orders of magnitude."""


def log_gains(pairs: Sequence[Pair]) -> FloatArray:
    """The logarithm of the factor of throughput, pair by pair."""
    return np.array([math.log(_pace_s(pair.base) / _pace_s(pair.changed)) for pair in pairs])


def _pace_s(block: Block) -> float:
    return max(block.seconds, 1e-9) / max(block.samples, 1)


def gain(pairs: Sequence[Pair]) -> Interval | None:
    """The factor of throughput with its 95 % interval; None with fewer than two pairs."""
    if len(pairs) < 2:
        return None
    found = interval_of_mean(log_gains(pairs), 0.95)
    return Interval(*(math.exp(min(_WIDEST, max(-_WIDEST, v))) for v in (found.estimate, found.low, found.high)))


def interval_of_mean(gains: FloatArray, confidence: float) -> Interval:
    """The trimmed mean; with fewer than five values nothing is trimmed.

    The same as scipy.stats.mstats.trimmed_mean_ci, whose import takes long and adds a filter to the process's warnings.
    """
    count, cut = len(gains), int(_TRIMMED * len(gains))
    kept = np.sort(gains)[cut : count - cut]
    mean = float(kept.mean())
    # Winsorized: each value that was cut counts as the nearest that was kept.
    winsorized = np.concatenate([np.repeat(kept[0], cut), kept, np.repeat(kept[-1], cut)])
    error = float(winsorized.std(ddof=1)) / ((1 - 2 * _TRIMMED) * math.sqrt(count))
    away = float(stdtrit(len(kept) - 1, (1 + confidence) / 2)) * error
    return Interval(mean, mean - away, mean + away)


def judge(pairs: Sequence[Pair], *, last: bool = False) -> Outcome | None:
    """Whether a change is kept or dropped, or undecided where it is not worth more pairs; None while it takes more."""
    gains = log_gains(pairs)
    if len(gains) == _FEW_PAIRS:
        if gains.max() < math.log(_HOPELESS) and _surely_not(gains):
            return "dropped"
        if np.ptp(gains) < _ALIKE and np.median(gains) < math.log(_PROMISING):
            return "dropped" if _surely_not(gains) else "undecided"
        return "kept" if is_far_faster(pairs) and _surely(gains) else None
    last = last or len(gains) >= _MOST_PAIRS
    if len(gains) < FEWEST_PAIRS or (len(gains) not in _LOOKS and not last):
        return None
    if _surely(gains):
        return "kept"
    if _surely_not(gains):
        return "dropped"
    return "undecided" if last or np.median(gains) < math.log(_PROMISING) else None


def is_far_faster(pairs: Sequence[Pair]) -> bool:
    """Whether each pair gains more than chance can make of a change that gains nothing."""
    return bool(log_gains(pairs).min() > math.log(_LARGE))


def _surely(gains: FloatArray) -> bool:
    return interval_of_mean(gains, _SURE).low > math.log(WORTH)


def _surely_not(gains: FloatArray) -> bool:
    return interval_of_mean(gains, _HARDLY).high < math.log(WORTH)
