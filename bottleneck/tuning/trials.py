"""The record of what became of a change."""

from __future__ import annotations

from collections.abc import Sequence

from bottleneck.results.records import Interval
from bottleneck.results.tuning import NO_TIME, Outcome, Pair, Trial
from bottleneck.tuning.change import Setting, labels
from bottleneck.tuning.climb import Attempt, describe
from bottleneck.tuning.pairs import gain


def tried(
    attempt: Attempt,
    outcome: Outcome,
    reason: str | None,
    pairs: Sequence[Pair],
    setup_s: float | None,
    predicted: Interval | None,
) -> Trial:
    """One that was measured, or failed."""
    changes = [setting.change for setting in attempt.tried]
    altering = next((change for change in changes if change.alters == "numbers"), changes[0])
    return Trial(
        describe(attempt.tried), labels(attempt.base), changes[0].on, altering.alters, outcome, reason,
        gain(pairs), predicted, tuple(pairs), setup_s, tuple(change.name for change in changes),
    )  # fmt: skip


def untried(setting: Setting, whys: Sequence[str | None], predicted: Interval | None) -> Trial:
    """One that was not: it nowhere applied, has to be tried by hand, or there was no time.

    Args:
        setting: What would have been; without a value where none of the change's was tried.
        whys: Why it did not apply, for each time that it was considered; None where it did.
        predicted: What advice promises of it.
    """
    change = setting.change
    nowhere = bool(whys) and None not in whys
    outcome: Outcome = "not_applicable" if nowhere else "not_tried"
    reason = whys[-1] if nowhere else change.by_hand or NO_TIME
    return Trial(
        setting.label, (), change.on, change.alters, outcome, reason, None, predicted, (), None, (change.name,)
    )
