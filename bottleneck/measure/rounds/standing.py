"""The judgement of the blocks so far, and the arms that it leaves open."""

from __future__ import annotations

from collections.abc import Callable

from bottleneck.measure.ladder import Arm, Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.rounds.schedule import LIKELY, MIN_INTERVAL_ROUNDS, ROUNDS_OF_TABLES
from bottleneck.results.records import NO_JUDGEMENT, Judgement, Result

Judge = Callable[[Result], Judgement]

_CERTAIN = 0.99
"""Probability of a state above which no more time is spent on that alone."""


class Standing:
    """State, name and numbers as the blocks so far support them.

    Args:
        judge: Judges if the blocks so far suffice.
        ledger: Holds the blocks.
        has_clocks: True after a running start, which knows the likely stages before any experiment.
        is_budget_given: True if the user has given a budget, for a state that other parts of the loop make unimportant.
    """

    def __init__(self, judge: Judge, ledger: Ledger, *, has_clocks: bool, is_budget_given: bool) -> None:
        self._judge, self._ledger = judge, ledger
        self._has_clocks, self._is_budget_given = has_clocks, is_budget_given
        self.found = NO_JUDGEMENT
        self.rounds_for_device = MIN_INTERVAL_ROUNDS
        """Rounds of the arms besides device and raw, for the tables of a job that the device limits."""

    def judge(self) -> Judgement:
        """Judge all blocks, and return the judgement."""
        self.found = self._judge(self._ledger.measurement())
        return self.found

    @property
    def device_bound(self) -> bool:
        """True if the device limits the job."""
        return self.found.state == "device_bound"

    @property
    def leans_to_device(self) -> bool:
        """True if the device probably limits the job, by two rounds or more."""
        leaning = self.found.leaning
        return leaning is not None and leaning.state == "device_bound" and leaning.chance >= LIKELY

    @property
    def lacks_only_name(self) -> bool:
        """True if the input clearly limits the job, so that only the name is open."""
        found, leaning = self.found, self.found.leaning
        likely = leaning is not None and leaning.state == "input_bound" and leaning.chance >= _CERTAIN
        return likely and found.state == "input_bound" and not found.named

    @property
    def arms_without_likely(self) -> tuple[Arm, ...]:
        """The arms without the stages that are likely to limit the job, the likeliest first."""
        without = dict(self._ladder.without)
        return tuple(without[stage] for stage in self.found.likely_stages if stage in without)

    @property
    def is_settled(self) -> bool:
        """True if the answer is certain and useful, and every arm that it needs has enough rounds for an interval."""
        ends, blocks = (self._ladder.device, self._ladder.raw), self._ledger.blocks
        others = self.arms_without_likely[:1] if self._has_clocks else self._ladder.arms()
        rounds = self.rounds_for_device if self.device_bound else MIN_INTERVAL_ROUNDS
        enough = dict.fromkeys(others, rounds) | dict.fromkeys(ends, MIN_INTERVAL_ROUNDS)
        settled = self.found.settled or (self.found.is_elsewhere and not self._is_budget_given)
        return settled and all(len(blocks.get(arm, ())) >= wanted for arm, wanted in enough.items())

    @property
    def is_precise(self) -> bool:
        """True if the answer is settled, or all printed numbers are precise."""
        return self.found.precise or self.is_settled

    def done_arms(self) -> frozenset[Arm]:
        """Return the arms with enough rounds for their purpose.

        Tables need a few. Once state and name are established, the amounts are open: the efficiency, and the gain of
        the named stage. Before, the stages that could gain something are open, and the costs. If the device probably
        limits the job, no stage has to be named: device and raw get the time.
        """
        found, ladder, blocks = self.found, self._ladder, self._ledger.blocks
        if found.precise:
            return frozenset()
        open_arms = {ladder.device, ladder.raw, *ladder.prepared_arms()}
        enough = ROUNDS_OF_TABLES
        if self.leans_to_device:
            enough = self.rounds_for_device
        elif found.stands:
            open_arms |= {arm for stage, arm in ladder.without if stage == found.bottleneck}
        else:
            open_arms |= {arm for stage, arm in ladder.without if stage not in found.settled_stages}
            open_arms.update(() if found.costs_precise else ladder.cost_arms())
        return frozenset(arm for arm in ladder.arms() if arm not in open_arms and len(blocks.get(arm, ())) >= enough)

    @property
    def _ladder(self) -> Ladder:
        return self._ledger.ladder
