"""Which arm runs when, and for how long: rounds, block lengths and the budget."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from bottleneck.measure.arms import Arm, Ladder
from bottleneck.measure.blocks import block_batches
from bottleneck.staging import stages

MIN_ROUNDS = 6
_DEFAULT_BUDGET_S = 55.0
_QUICK_BUDGET_S = 19.0
_LONGEST_BUDGET_S = 170.0
"""What the default budget may grow to for a slow job."""
_CLOSING_S = 1.5
"""Kept for stopping the workers and putting everything back."""
FIRST_ROUNDS_SHARE = 0.7
"""The share of the time for measuring in which the first six rounds shall fit; the rest is for what is still open."""
_BLOCK_BATCHES = 20
_QUICK_BLOCK_BATCHES = 8
SHORTEST_BLOCK_S = 0.15
_LONGEST_BLOCK_S = 1.5
_SHRINKINGS = 12


@dataclass(frozen=True)
class Pace:
    """What is known of an arm's speed so far."""

    seconds_per_batch: float
    preparing_s: float
    """Switching, discarding and warming up."""

    def updated(self, latest: Pace) -> Pace:
        """Return the pace after another visit; the first one may have been an exception."""
        seconds_per_batch = (self.seconds_per_batch + latest.seconds_per_batch) / 2
        return Pace(seconds_per_batch, (self.preparing_s + latest.preparing_s) / 2)


class OrderOfArms:
    """Random orders, each followed by its reverse, so that drift within a round cancels."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._reverse: list[Arm] | None = None
        self._arms: frozenset[Arm] = frozenset()

    def next_round(self, arms: Sequence[Arm]) -> list[Arm]:
        """Return the arms in the order of the next round."""
        if self._reverse is not None and frozenset(arms) == self._arms:
            order, self._reverse = self._reverse, None
            return order
        order = list(arms)
        self._random.shuffle(order)
        self._reverse, self._arms = order[::-1], frozenset(arms)
        return order


@dataclass(frozen=True)
class Lengths:
    """The length of a visit to each arm.

    Attributes:
        batches: Batches in a block.
        seconds: Expected time of a visit, preparation included.
    """

    batches: dict[Arm, int]
    seconds: dict[Arm, float]

    def round_s(self, arms: Sequence[Arm]) -> float:
        """Expected time of a round over some arms."""
        return sum(self.seconds[arm] for arm in arms)


def lengths_for(paces: dict[Arm, Pace], target_s: float, workers: int) -> Lengths:
    """Give every arm a block of about `target_s`."""
    batches = {
        arm: block_batches(arm, pace.seconds_per_batch, target_s * _weight(arm), workers) for arm, pace in paces.items()
    }
    seconds = {arm: pace.preparing_s + batches[arm] * pace.seconds_per_batch for arm, pace in paces.items()}
    return Lengths(batches, seconds)


def _weight(arm: Arm) -> float:
    """Drained blocks with the hand-off say what the loader supplies, and nothing is decided by them."""
    return 0.5 if not arm.coupled and arm.mode is not None and arm.mode & stages.HANDOFF else 1.0


def total_budget_s(budget_s: float | None, *, quick: bool) -> float:
    """The time that the whole diagnosis may take, before it is known how slow the job is."""
    if budget_s is not None:
        return budget_s
    return _QUICK_BUDGET_S if quick else _DEFAULT_BUDGET_S


def find_deadline_s(
    ladder: Ladder,
    paces: dict[Arm, Pace],
    workers: int,
    *,
    started_s: float,
    now_s: float,
    budget_s: float | None,
    quick: bool,
) -> float:
    """Return when to stop measuring, by the session's clock.

    Args:
        ladder: What is to be measured.
        paces: The speed of every arm, from a first short visit.
        workers: Workers of the loader.
        started_s: When the diagnosis began, by the session's clock.
        now_s: The present time by the same clock.
        budget_s: The user's budget; None: ours, which grows for slow jobs.
        quick: Aim at 20 seconds.
    """
    total_s = total_budget_s(budget_s, quick=quick)
    if budget_s is None and not quick:
        shortest_s = lengths_for(paces, 0.0, workers).round_s(ladder.arms())
        needed_s = (now_s - started_s) + (MIN_ROUNDS + 1) * shortest_s + _CLOSING_S
        total_s = min(_LONGEST_BUDGET_S, max(total_s, needed_s))
    return started_s + total_s - _CLOSING_S


def plan_round(
    ladder: Ladder,
    arms: Sequence[Arm],
    paces: dict[Arm, Pace],
    workers: int,
    *,
    left_s: float,
    rounds: int,
    quick: bool,
) -> Lengths:
    """Choose the length of the visits of the next round.

    The rounds shall fit into the time, so the blocks get shorter where it is short, down to one burst of the workers.

    Args:
        ladder: What is to be measured.
        arms: What the round visits.
        paces: The speed of every arm, as far as it is known.
        workers: Workers of the loader.
        left_s: Time for the rounds.
        rounds: How many of them shall fit into it.
        quick: Aim at 20 seconds.

    Returns:
        Lengths for all arms of the ladder.
    """
    wanted = _QUICK_BLOCK_BATCHES if quick else _BLOCK_BATCHES
    target_s = min(_LONGEST_BLOCK_S, max(SHORTEST_BLOCK_S, wanted * paces[ladder.device].seconds_per_batch))
    lengths = lengths_for(paces, target_s, workers)
    for _ in range(_SHRINKINGS):
        if rounds * lengths.round_s(arms) <= left_s:
            break
        target_s *= 0.75
        lengths = lengths_for(paces, target_s, workers)
    return lengths


def rounds_fit(ladder: Ladder, paces: dict[Arm, Pace], workers: int, left_s: float) -> bool:
    """Whether six rounds of the shortest blocks, and a first visit to every arm, fit into the time that is left.

    Where they do not, device and raw come first: they decide whether there is anything to explain.
    """
    return (MIN_ROUNDS + 1) * lengths_for(paces, 0.0, workers).round_s(ladder.arms()) <= left_s
