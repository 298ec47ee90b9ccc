"""Order and lengths of visits: rounds, block lengths, the budget and the elapsed part of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bottleneck.loader import modes
from bottleneck.measure.bench import block_batches
from bottleneck.measure.ladder import Arm, Ladder, reads_storage
from bottleneck.measure.options import MeasureOptions, ProgressCallback, ProgressUpdate
from bottleneck.results.records import Warning
from bottleneck.results.warnings.too_little import bursts

LIKELY = 0.75
"""Probability above which the progress line names the likely state of the job."""
MIN_ROUNDS = 6
ROUNDS_OF_TABLES = 3
"""Rounds of an arm that is needed for tables only, while the answer is open."""
MIN_INTERVAL_ROUNDS = 2
"""Rounds without which there is no interval."""
_ROUNDS_OF_ENDS = 4
"""Rounds of device and raw below which no block is longer than needed: two are judged by Student's 12.7."""
_ENDS_CUT = 0.5
"""Share of its length to which a block of device or raw may be cut, to make room for other experiments."""
_ENDS_SHARE = 0.5
"""Share of the time for the first rounds that device and raw may take."""
_ROUNDS_TO_GROW_FOR = 4
"""Rounds of everything for which the default budget grows if the job is slow."""
_DEFAULT_BUDGET_S = 45.0
_QUICK_BUDGET_S = 19.0
_MAX_BUDGET_S = 170.0
"""Limit of the default budget for a slow job."""
_SLOW_BUDGET_S = 41.0
"""Default budget after a running start, at least."""
_BATCHES_OF_ANSWER = 13
"""The same in batches of a worker."""
_STEPS_OF_ANSWER = 150
"""The same in steps."""
CLOSING_S = 1.5
"""Seconds reserved for stopping the workers and restoring everything."""
FIRST_ROUNDS_SHARE = 0.7
"""Share of the time for measuring into which the first six rounds should fit; the rest is for open questions."""
_BLOCK_BATCHES = 10
_QUICK_BLOCK_BATCHES = 8
MIN_BLOCK_S = 0.15
_MAX_BLOCK_S = 1.5
_RAW_TIMES = 2.0
"""Length of blocks of raw over that of others, because the batch times of its workers are uneven."""
_SHRINKINGS = 12
_USUALLY_LONGER = 1.3
"""Factor by which a block with the train step usually exceeds its minimum, until the queue is back at its level."""
_MAX_TIMES_LONGER = 16
"""Batches of a block over those that its pace was measured with, at most: the first may have been ready in a queue of
the dataset, which takes seconds to fill."""


# --- batches that come in bursts ----------------------------------------------------------------------------
#
# A queue inside the dataset that refills at once yields many batches after a long wait. A block without a refill, or
# one that should contain a third of one, says nothing about the job. Blocks grow to contain some, within a share of the
# time for measuring; if that is too short, the report says so.

_BURSTS_OF_A_BLOCK = 3
BURSTS_SHARE = 1 / 8
"""Share of the time for measuring to which a block may grow, to contain that many bursts."""
_MIN_BURSTS = 1.5
"""Bursts seen so far; one alone may have been a hiccup of the machine."""
_LARGE_BURST = 2.0
"""Turns of all workers that come at once in a burst, at least; a single turn is not a burst."""
_WORTH_WAITING = 0.05
"""Share of the time spent waiting above which bursts decide the result of a block."""


@dataclass(frozen=True)
class Bursts:
    """Arrival of batches in bursts.

    Attributes:
        batches: Batches in a burst.
        wait_s: Seconds of waiting for the first batch of one.
        every_s: Seconds from one to the next.
        seen: Number of bursts; 0 if batches come evenly.
    """

    batches: float = 0.0
    wait_s: float = 0.0
    every_s: float = 0.0
    seen: float = 0.0

    @property
    def wanted_s(self) -> float:
        """Seconds of a block that contains some of them."""
        return _BURSTS_OF_A_BLOCK * self.every_s if self.seen >= _MIN_BURSTS else 0.0

    def warning(self, longest_s: float, spent_s: float) -> Warning | None:
        """Return a warning if blocks are too short for them.

        Args:
            longest_s: Largest possible length of a block.
            spent_s: Time before the first block.
        """
        wanted_s = _BURSTS_OF_A_BLOCK * self.every_s
        once = self.seen < _MIN_BURSTS
        if wanted_s <= longest_s or (once and _BURSTS_OF_A_BLOCK * self.wait_s < longest_s):
            return None
        return bursts(self.wait_s, longest_s, wanted_s=spent_s + wanted_s / BURSTS_SHARE)


EVEN = Bursts()


def find_bursts(waits_s: Sequence[float], seconds_per_batch: float, workers: int) -> Bursts:
    """Return the bursts of batches, by the wait for each of them."""
    waited_s = sum(waits_s)
    if waited_s <= _WORTH_WAITING * len(waits_s) * seconds_per_batch:
        return EVEN
    wait_s = sum(each_s * each_s for each_s in waits_s) / waited_s  # the mean wait of a random moment of waiting
    seen = waited_s / wait_s
    batches = len(waits_s) / seen
    if batches <= _LARGE_BURST * max(1, workers):
        return EVEN
    return Bursts(batches, wait_s, batches * seconds_per_batch, seen)


# --- lengths of blocks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pace:
    """Known speed of an arm."""

    seconds_per_batch: float
    preparing_s: float
    """Seconds for switching, discarding and warming up."""
    batches: float = math.inf
    """Batches that it was measured with."""
    bursts: Bursts = EVEN
    longest_s: float = 0.0
    """Length to which a block may grow for its bursts."""

    def updated(self, latest: Pace) -> Pace:
        """Return the pace after another visit; the first one may have been an exception."""
        seconds_per_batch = (self.seconds_per_batch + latest.seconds_per_batch) / 2
        preparing_s = (self.preparing_s + latest.preparing_s) / 2
        return Pace(seconds_per_batch, preparing_s, self.batches + latest.batches, latest.bursts)


@dataclass(frozen=True)
class Lengths:
    """Length of a visit to each arm: the batches of its block, and the expected seconds, preparation included."""

    batches: dict[Arm, int]
    seconds: dict[Arm, float]

    def round_s(self, arms: Sequence[Arm]) -> float:
        return sum(self.seconds[arm] for arm in arms)


def lengths_for(
    paces: dict[Arm, Pace], target_s: float, workers: int, longer: Mapping[Arm, float] = MappingProxyType({})
) -> Lengths:
    """Give every arm a block of about `target_s`, or of its length in `longer`."""
    batches = {}
    for arm, pace in paces.items():
        length_s = max(longer.get(arm, target_s * _weight(arm, workers)), min(pace.longest_s, pace.bursts.wanted_s))
        most = _MAX_TIMES_LONGER * pace.batches if reads_storage(arm) else math.inf
        batches[arm] = int(min(block_batches(arm, pace.seconds_per_batch, length_s, workers), most))
    seconds = {
        arm: pace.preparing_s + batches[arm] * _overrun(arm, workers) * pace.seconds_per_batch
        for arm, pace in paces.items()
    }
    return Lengths(batches, seconds)


def _overrun(arm: Arm, workers: int) -> float:
    """Return the factor by which a block usually exceeds its minimum length."""
    return _USUALLY_LONGER if arm.queued and workers else 1.0


def _weight(arm: Arm, workers: int) -> float:
    """Return the relative length of a block: blocks of the loader with the hand-off are not needed for costs."""
    with_handoff = arm.mode is not None and arm.mode & modes.HANDOFF
    return 0.5 if workers and not arm.coupled and with_handoff else 1.0


def total_budget_s(budget_s: float | None, *, quick: bool) -> float:
    """Return the time for the whole diagnosis before the speed of the job is known."""
    if budget_s is not None:
        return budget_s
    return _QUICK_BUDGET_S if quick else _DEFAULT_BUDGET_S


def find_deadline_s(
    ladder: Ladder,
    paces: dict[Arm, Pace],
    workers: int,
    arms: Sequence[Arm],
    *,
    started_s: float,
    now_s: float,
    budget_s: float | None,
    quick: bool,
    batch_s: float | None = None,
) -> float:
    """Return the time to stop measuring, by the session's clock; a default budget grows for slow jobs.

    Args:
        ladder: The experiments.
        paces: Known paces.
        workers: Workers that make batches.
        arms: Arms that the answer needs: device and raw if the device probably limits the job.
        started_s: Beginning of the diagnosis.
        now_s: The present time.
        budget_s: Seconds given by the user; None for the default.
        quick: True for the short default.
        batch_s: Seconds of a worker per batch, after a running start.
    """
    total_s = total_budget_s(budget_s, quick=quick)
    if budget_s is None and not quick and batch_s is not None:
        step_s = paces[ladder.device].seconds_per_batch
        wanted_s = max(_BATCHES_OF_ANSWER * batch_s, _STEPS_OF_ANSWER * step_s)
        total_s = min(_MAX_BUDGET_S, max(_SLOW_BUDGET_S, wanted_s))
    elif budget_s is None and not quick:
        shortest_s = lengths_for(paces, 0.0, workers).round_s(arms)
        needed_s = (now_s - started_s) + _ROUNDS_TO_GROW_FOR * shortest_s + CLOSING_S
        total_s = min(_MAX_BUDGET_S, max(total_s, needed_s))
    return started_s + total_s - CLOSING_S


class Planner:
    """Plans rounds: device and raw are in each of them, the other experiments take turns if time is short.

    Experiments that are compared with each other stay together, and the groups visited least come first.
    """

    def __init__(self, ladder: Ladder, workers: int, *, quick: bool) -> None:
        self.ladder = ladder
        self._workers = workers
        self._quick = quick
        self._visits: dict[tuple[Arm, ...], int] = {}

    def rounds_within(self, paces: dict[Arm, Pace], seconds: float) -> int:
        """Return the number of rounds to plan for: six, or as many as fit of everything that a name needs.

        If fewer than two of these fit, as many as device and raw fit into half of the time; their blocks are cut short
        before there are fewer than four.
        """
        rounds = self.naming_rounds_within(paces, seconds)
        if rounds < MIN_INTERVAL_ROUNDS:
            ends = (self.ladder.device, self.ladder.raw)
            whole, cut = (self._lengths(paces, share, share).round_s(ends) for share in (1.0, 0.0))
            fits, at_most = (int(_ENDS_SHARE * seconds / max(ends_s, 1e-6)) for ends_s in (whole, cut))
            rounds = max(fits, min(_ROUNDS_OF_ENDS, at_most))
        return max(MIN_INTERVAL_ROUNDS, min(MIN_ROUNDS, rounds))

    def naming_rounds_within(self, paces: dict[Arm, Pace], seconds: float) -> int:
        """Return the number of rounds that fit of everything that a name needs."""
        naming_s = self._lengths(paces, 0.0, _ENDS_CUT).round_s(self.ladder.deciding_arms())
        return int(seconds / max(naming_s, 1e-6))

    def plan(
        self, paces: dict[Arm, Pace], seconds: float, left_s: float, done: frozenset[Arm] = frozenset()
    ) -> tuple[list[Arm], Lengths]:
        """Choose device and raw for a round of `seconds`, and further arms that fit and are not done.

        Others wait for a later round, which gets the time that this one leaves; all together have `left_s`.
        """
        chosen = [self.ladder.device, self.ladder.raw]
        shortest = self._lengths(paces, 0.0, _ENDS_CUT)
        groups = (tuple(arm for arm in group if arm not in done) for group in self.ladder.groups())
        for group in sorted(filter(None, groups), key=lambda group: self._visits.get(group, 0)):
            if shortest.round_s([*chosen, *group]) <= seconds:
                chosen += group
                self._visits[group] = self._visits.get(group, 0) + 1
            elif shortest.round_s([*chosen[:2], *group]) <= left_s:
                break
        return chosen, self.lengths_within(paces, seconds, chosen)

    def lengths_within(self, paces: dict[Arm, Pace], seconds: float, arms: Sequence[Arm]) -> Lengths:
        """Return lengths that fit; blocks that decide if there is anything to explain are the last to be cut."""
        share = ends_share = 1.0
        for number in range(2 * _SHRINKINGS):
            lengths = self._lengths(paces, share, ends_share)
            if lengths.round_s(arms) <= seconds:
                break
            if number < _SHRINKINGS:
                share *= 0.75
            else:
                ends_share *= 0.75
        return lengths

    def _lengths(self, paces: dict[Arm, Pace], share: float, ends_share: float) -> Lengths:
        wanted = _QUICK_BLOCK_BATCHES if self._quick else _BLOCK_BATCHES
        step_s = paces[self.ladder.device].seconds_per_batch
        target_s = min(_MAX_BLOCK_S, max(MIN_BLOCK_S, wanted * step_s))
        ends = {self.ladder.device: ends_share * target_s, self.ladder.raw: ends_share * _RAW_TIMES * target_s}
        return lengths_for(paces, share * target_s, self._workers, ends)


@dataclass(frozen=True)
class Times:
    """Beginning of the measuring, and the time after the rounds, by the bench's clock.

    Attributes:
        started_s: Beginning of the diagnosis.
        closing_s: Seconds reserved for the time after the rounds.
        ends_at: Receives the end of the diagnosis.
    """

    started_s: float
    closing_s: float = 0.0
    ends_at: Callable[[float], None] = lambda _: None


def expect_paces(ladder: Ladder, expected_s: Mapping[str, float], raw_s: float) -> dict[Arm, float]:
    """Return the expected seconds per batch of each coupled arm.

    Args:
        ladder: The arms.
        expected_s: Seconds by experiment, from the workers' clocks.
        raw_s: Seconds of all other experiments.
    """
    named = [(arm, f"without {stage}") for stage, arm in ladder.without]
    coupled = ((rung.coupled, rung.name) for rung in ladder.rungs if rung.coupled is not None)
    named += [(arm, name) for arm, name in coupled if arm.preparation is None]
    return {arm: expected_s.get(name, raw_s) for arm, name in reversed(named)}


class Timekeeper:
    """Clock of the budget, which starts with the diagnosis or earlier phases that count towards it."""

    def __init__(self, options: MeasureOptions, on_progress: ProgressCallback, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._on_progress = on_progress
        self.started_s = clock() - options.spent_s
        self.budget_s = total_budget_s(options.budget_s, quick=options.quick)
        """Seconds for the whole diagnosis; the usual budget before the speed of the job is known."""
        is_ours = options.budget_s is None and not options.quick
        self.longest_budget_s = _MAX_BUDGET_S if is_ours else self.budget_s
        """The same for a slow job."""
        self.left_out_s = 0.0
        """Seconds that do not count towards the budget."""

    def leave_out(self, seconds: float) -> None:
        """Exclude time from the budget, such as the compiling of the job's model."""
        self.left_out_s += seconds
        self.budget_s += seconds
        self.longest_budget_s += seconds

    @property
    def counted_from_s(self) -> float:
        """Beginning of the budget, moved by the time that does not count."""
        return self.started_s + self.left_out_s

    def ends_at(self, at_s: float) -> None:
        """Set the end of the diagnosis, by the clock, once the speed of the job is known."""
        self.budget_s = at_s - self.started_s

    def elapsed_s(self) -> float:
        return self.clock() - self.started_s

    def tell(self, phase: str, **fields: Any) -> None:
        """Report progress, with fields of `ProgressUpdate`; never inside a block."""
        self._on_progress(ProgressUpdate(phase, **fields, elapsed_s=self.elapsed_s(), budget_s=self.budget_s))
