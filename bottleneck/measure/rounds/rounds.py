"""Visit every arm in every round, until the estimates are precise or the time is up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from bottleneck.measure.bench import Bench, block_batches
from bottleneck.measure.evidence.dataset import describe_loaded
from bottleneck.measure.evidence.io import find_blind_spots
from bottleneck.measure.ladder import Arm, Ladder, reads_storage
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.machine.environment import OtherLoad
from bottleneck.measure.options import MeasureOptions
from bottleneck.measure.rounds.confirming import LADDER_SHARE, LADDER_VISIT_S, Confirming, LongVisit
from bottleneck.measure.rounds.schedule import (
    BURSTS_SHARE,
    CLOSING_S,
    FIRST_ROUNDS_SHARE,
    LIKELY,
    MIN_INTERVAL_ROUNDS,
    MIN_ROUNDS,
    ROUNDS_OF_TABLES,
    Lengths,
    Pace,
    Planner,
    Times,
    expect_paces,
    find_deadline_s,
    lengths_for,
    total_budget_s,
)
from bottleneck.measure.rounds.standing import Judge, Standing
from bottleneck.measure.rounds.turns import OrderOfArms, Turns, Visit
from bottleneck.measure.rounds.visit import Counters
from bottleneck.measure.rounds.visits import Visits
from bottleneck.measure.running import Running

Tell = Callable[..., None]

_MAX_ROUNDS = 10_000
_TRYING_SHARE = 0.02
"""Share of the budget for trying out `raw` without workers."""
_REFINING_SHARE = 0.2
"""Share of the budget for costs that are not precise when everything else is."""
_EXACT_HALF_WIDTH = 0.005
"""Half width of the interval of the efficiency below which more rounds would not change an undecided state."""
_LONG_ROUND_S = 6.0
"""Seconds of a round of everything above which device and raw have two rounds of their own before it."""


class Rounds:
    """Visits the arms of a ladder round by round.

    Args:
        judge: Judges if the blocks so far suffice.
        tell: Reports progress: a phase, and fields of `ProgressUpdate`.
        times: Beginning of the diagnosis, and the time to reserve for its end.
        counters: Counters read at the edges of blocks.
        running: Findings of a running start; None without one.
    """

    def __init__(
        self,
        bench: Bench,
        ledger: Ledger,
        options: MeasureOptions,
        judge: Judge,
        tell: Tell,
        times: Times,
        counters: Counters | None = None,
        running: Running | None = None,
    ) -> None:
        self._times = times
        self._bench = bench
        self._ledger = ledger
        self._options = options
        self._standing = Standing(
            judge, ledger, has_clocks=running is not None, is_budget_given=options.budget_s is not None
        )
        self._tell = tell
        self._started_s = times.started_s
        self._clock = bench.clock
        self._workers = bench.loader.num_workers
        self._planner = Planner(ledger.ladder, self._workers, quick=options.quick)
        self._order = OrderOfArms[Arm](options.seed)
        self._order_of_costs = OrderOfArms[Arm](options.seed + 3)
        self._deadline_s = math.inf
        self._longest_s = 0.0
        self._tried_s = 0.0
        """Time at which the paces of both ends were first known."""
        self._running = running
        self._round = 0 if running is None else running.rounds
        self._other_load = OtherLoad()
        self._turns = Turns(self._clock, self._take_turn, lambda: self._left_s)
        self._lengths = Lengths({}, {})
        """Lengths of the present round."""
        self.counters = counters or Counters()
        self._visits = Visits(bench, ledger, self.counters, lambda: self._left_s)
        if running is not None:
            self._visits.paces.update(running.paces)

    def run(self) -> None:
        self._other_load.start()
        workers = self._bench.loader.workers
        if self._running is None:
            self.counters.reads.start(workers, find_blind_spots(self._bench.loader.user_dataset, workers))
            self._bench.events = self._bench.make_events()
            trying_s = _TRYING_SHARE * total_budget_s(self._options.budget_s, quick=self._options.quick)
            for arm in self._in_order_of_replays(list(self._ends)):
                self._tell("trying out", experiment=self._visits.name(arm))
                self._visits.try_out(arm, trying_s)
            if self._bench.events is not None:
                self._ledger.note(device_time=self._bench.events.evidence())
                self._bench.events = None
        self._tried_s = self._clock()
        self._set_deadline()
        self._longest_s = BURSTS_SHARE * self._left_s
        spent_s = self._clock() - self._started_s
        if self._running is None:
            self._run_first_rounds()
        else:
            self._confirm(self._running)
        if not self._standing.is_settled:
            self._settle_verdict()
            self._refine()
        self._visits.warn_of_changes()
        reading = (self._ladder.raw, *filter(reads_storage, self._visits.paces))  # the job itself first
        warnings = (self._visits.paces[arm].bursts.warning(self._longest_s, spent_s) for arm in reading)
        self._ledger.warn_all(filter(None, [next(filter(None, warnings), None)]))

    def _run_first_rounds(self) -> None:
        """Visit everything, until the answer is known or the time for it is over.

        Each round is planned by the paces known so far: the first ones may have been disturbed.
        """
        begun_s, done = self._clock(), 0
        if self._is_round_long:  # the state alone may be the answer
            self._standing.rounds_for_device = 0
            for _ in range(MIN_INTERVAL_ROUNDS):
                self._run_round(self._order.next_round(self._ends), MIN_ROUNDS)
            self._set_deadline()
        while not (self._is_over() or self._standing.is_settled):
            for_rounds_s = FIRST_ROUNDS_SHARE * (self._deadline_s - begun_s)
            paces, left_s = self._guessed_paces(), max(0.0, begun_s + for_rounds_s - self._clock())
            rounds_left = self._planner.rounds_within(paces, for_rounds_s) - done
            rounds_left = max(rounds_left, self._rounds_for_name(paces, left_s))
            # If two rounds of all that a name needs do not fit, the name gets the time that the state leaves.
            state_first = self._planner.naming_rounds_within(paces, for_rounds_s) < MIN_INTERVAL_ROUNDS
            if rounds_left <= 0 or (state_first and self._standing.found.state == "input_bound"):
                break
            self._run_full_round(left_s / rounds_left, left_s, first=rounds_left == MIN_ROUNDS)
            done += 1
            self._set_deadline()

    def _rounds_for_name(self, paces: dict[Arm, Pace], seconds: float) -> int:
        """Return how many rounds the arms that a name needs lack of an interval, as far as they fit.

        Arms that were not visited yet may turn out quicker than was guessed, and fit after all.
        """
        blocks = self._ledger.blocks
        fewest = min((len(blocks.get(arm, ())) for arm in self._ladder.deciding_arms()), default=0)
        return min(max(0, MIN_INTERVAL_ROUNDS - fewest), self._planner.naming_rounds_within(paces, seconds))

    def _set_deadline(self) -> None:
        """Set the end of the measuring by the speed of the job; it may come nearer, but does not move away."""
        found_s = find_deadline_s(
            self._ladder,
            self._guessed_paces(),
            self._workers,
            self._ends if self._standing.leans_to_device else self._ladder.arms(),
            started_s=self._started_s,
            now_s=self._tried_s,
            budget_s=self._options.budget_s,
            quick=self._options.quick,
            batch_s=None if self._running is None else self._running.batch_s,
        )
        self._deadline_s = self._bench.until_s = min(self._deadline_s, found_s - self._times.closing_s)
        self._times.ends_at(self._deadline_s + self._times.closing_s + CLOSING_S)

    # --- after a running start -----------------------------------------------------------------------------

    def _confirm(self, running: Running) -> None:
        """Confirm the stage named by the workers' clocks, and visit the quick experiments of the ladder."""
        found = self._standing.judge()
        leans = found.state if found.leaning is None else found.leaning.state
        plan = Confirming(
            expect_paces(self._ladder, found.expected_s, self._visits.paces[self._ladder.raw].seconds_per_batch),
            self._visits.paces[self._ladder.device].seconds_per_batch,
            self._workers,
            self._bench.loop.batches_per_update,
            running.rounds,
        )
        for visit in plan.of_name(self._standing.arms_without_likely if leans == "input_bound" else ()):
            if not self._standing.is_settled:
                self._visit_turns(visit, self._deadline_s)
        ladder_until_s = self._started_s + LADDER_SHARE * (self._deadline_s - self._started_s)
        for visit in plan.of_ladder(lambda arm: arm in self._ledger.blocks):
            if visit.seconds <= LADDER_VISIT_S:
                self._visit_turns(visit, ladder_until_s)

    def _visit_turns(self, visit: LongVisit, until_s: float) -> None:
        """Measure the blocks of a visit one after the other, if they end in time."""
        if self._clock() + visit.seconds > until_s:
            return
        self._tell_of(visit.arm)
        self._bench.until_s = self._clock()  # no time to wait for the queue to regain its level
        made = self._visit(visit.arm, visit.batches, range(1, visit.rounds + 1))
        self._bench.until_s = self._deadline_s
        for block in (made.block, *made.further):
            self._ledger.add(visit.arm, block)
        self._standing.judge()

    def _refine(self) -> None:
        """Continue while the answer is uncertain, until all printed numbers are precise."""
        before = -1
        while not (self._standing.is_precise or self._is_over()) and self._bench.batches > before:
            before = self._bench.batches  # a round without time for any of its arms is the last
            self._run_full_round(self._left_s, self._left_s)
            self._run_cost_round()
        # Then the workers alone for a while, if the shares are precise but the costs are not.
        until_s = self._clock() + _REFINING_SHARE * total_budget_s(self._options.budget_s, quick=False)
        while self._clock() < until_s and self._run_cost_round():
            pass

    def _settle_verdict(self) -> None:
        """Spend the remaining time on an open verdict: on the state, or else on the name.

        It is spent until the answer is certain: to stop at the first verdict would let noise decide it. An efficiency
        that is known exactly is on the edge, and more rounds would not change that.
        """
        if self._standing.found.state == "undecided":
            self._spend_on(self._ends)
        elif self._running is not None:
            self._spend_on((*self._ends, *self._standing.arms_without_likely))
        if self._running is None and not self._standing.found.named and self._standing.found.state != "undecided":
            self._spend_on(self._ladder.deciding_arms())
            self._spend_on(self._ladder.gaining_arms())

    def _spend_on(self, arms: tuple[Arm, ...]) -> None:
        """Visit some arms round by round, for as long as whole rounds of them fit."""
        order, rounds = OrderOfArms[Arm](self._options.seed + 4), MIN_ROUNDS
        while self._fits(arms) and not self._standing.is_settled:
            known = self._standing.found.efficiency
            if arms == self._ends and known is not None and (known.high - known.low) / 2 <= _EXACT_HALF_WIDTH:
                break
            if arms == self._ends and self._standing.lacks_only_name:
                break
            self._run_round(order.next_round(arms), rounds)
            rounds = max(1, rounds - 1)
            arms = self._still_there(arms)

    def _run_cost_round(self) -> bool:
        """Visit the workers alone, if their costs are not precise and there is time; return True if so.

        These arms need no train step, and take turns quickly, so that a disturbance of some seconds affects both arms
        of a cost.
        """
        arms = self._ladder.cost_arms()
        if not arms or self._options.quick or self._standing.is_settled:
            return False
        if self._standing.found.costs_precise or not self._fits(arms):
            return False
        self._run_round(self._order_of_costs.next_round(arms), 1)
        return True

    @property
    def number(self) -> int:
        """Number of the last round."""
        return self._round

    @property
    def device_bound(self) -> bool:
        """True if the device limits the job, by the last judgement."""
        return self._standing.device_bound

    @property
    def _is_round_long(self) -> bool:
        """True if a round of everything takes seconds, even with the shortest blocks."""
        shortest = lengths_for(self._guessed_paces(), 0.0, self._workers)
        return self._running is None and shortest.round_s(self._ladder.arms()) > _LONG_ROUND_S

    @property
    def _ladder(self) -> Ladder:
        return self._ledger.ladder

    @property
    def _ends(self) -> tuple[Arm, Arm]:
        return self._ladder.device, self._ladder.raw

    @property
    def _left_s(self) -> float:
        return max(0.0, self._deadline_s - self._clock())

    def _guessed_paces(self) -> dict[Arm, Pace]:
        """Return the paces; arms not visited yet get that of the end that they resemble more."""
        device, raw = (self._visits.paces[arm] for arm in self._ends)
        found = {arm: self._visits.paces.get(arm, raw if reads_storage(arm) else device) for arm in self._ladder.arms()}
        return {arm: replace(pace, longest_s=self._longest_s) for arm, pace in found.items()}

    def _run_full_round(self, seconds: float, left_s: float, *, first: bool = False) -> None:
        """Visit device and raw, and those of the others that are open and fit; see `Planner.plan`.

        Tables wait for the second round.
        """
        done = self._standing.done_arms()
        if first:
            done |= {*self._ladder.arms()} - {*self._ladder.deciding_arms()}
        arms, lengths = self._planner.plan(self._guessed_paces(), seconds, left_s, done)
        self._visit_all(self._order.next_round(arms, self._ladder.gaining_arms() if first else ()), lengths)

    def _run_round(self, arms: list[Arm], rounds: int) -> None:
        """Visit some arms, with blocks that let this number of rounds end by the deadline."""
        self._visit_all(arms, self._planner.lengths_within(self._guessed_paces(), self._left_s / max(1, rounds), arms))

    def _visit_all(self, arms: list[Arm], lengths: Lengths) -> None:
        self._round += 1
        self.counters.training.begin_round()
        self._lengths = lengths
        self._turns.round(self._in_order_of_replays(arms), self._ledger, once=self._is_paired)
        self._other_load.lap()
        self._ledger.note(loaded_batches=describe_loaded(self._bench.loader))
        if self._options.loop.seen is not None:
            self._ledger.note(loop=self._options.loop.seen())
        self._standing.judge()

    def _take_turn(self, arm: Arm, again: int | None) -> Visit | None:
        """Visit an arm, the second time for `again` batches; return None if it is lost or there is no time."""
        if not self._still_there((arm,)):
            return None
        if again is not None:
            return self._visit(arm, again, range(self._round, self._round + 1))
        # Without two rounds of device and raw there is no result at all.
        is_needed = self._round <= MIN_INTERVAL_ROUNDS and arm in self._ends
        if self._lengths.seconds[arm] > self._left_s and not is_needed:
            return None
        self._tell_of(arm)
        # The pace of an arm that has not been visited yet is a guess: it may be slower by orders of magnitude.
        shortest = block_batches(arm, 1.0, 0.0, self._workers)
        planned = arm in self._visits.paces or (reads_storage(arm) and self._visits.paces[self._ladder.raw].bursts.seen)
        batches = self._lengths.batches[arm] if planned else shortest
        made = self._visit(arm, batches, range(self._round, self._round + 1))
        # After a broken visit there was no time for another one.
        return None if made.broken and self._ledger.blocks.get(arm) else made

    def _visit(self, arm: Arm, batches: int, rounds: range) -> Visit:
        made = self._visits.visit(arm, batches, rounds)
        self._planner.ladder = self._ladder  # without arms lost in this visit
        return made

    def _is_paired(self, arm: Arm) -> bool:
        """Return True if a block depends on its preparation, or on batches that raw has just received."""
        return arm.preparation is not None or (self._bench.replays.vary and arm in self._replayed)

    def _tell_of(self, arm: Arm) -> None:
        """Report the next arm and the findings so far; in the rounds of the first answer, judge all blocks."""
        if MIN_INTERVAL_ROUNDS <= self._round <= ROUNDS_OF_TABLES:
            self._standing.judge()
        found, planned = self._standing.found, max(self._round, MIN_ROUNDS)
        known: dict[str, Any] = {"efficiency": found.efficiency}
        if found.leaning is not None and found.leaning.chance >= LIKELY:
            known |= asdict(found.leaning)
        self._tell("measuring", experiment=self._visits.name(arm), round=self._round, rounds=planned, **known)

    def _still_there(self, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
        """Return the arms that have not been lost meanwhile."""
        left = self._ladder.arms()
        return tuple(arm for arm in arms if arm in left)

    def _in_order_of_replays(self, arms: list[Arm]) -> list[Arm]:
        """Put raw first, followed by the arms that replay its batches, if these differ from one another."""
        if not self._bench.replays.vary:
            return arms
        kept = [arm for arm in self._replayed if arm in arms]
        return [*kept, *(arm for arm in arms if arm not in kept)]

    @property
    def _replayed(self) -> tuple[Arm, ...]:
        """The arms `raw`, and those that replay the batches that it has just received."""
        return self._ladder.raw, self._ladder.device, Arm(None, "host")

    def _is_over(self) -> bool:
        """Return True if there is no time for another round of both ends, after the required two."""
        return self._round >= MIN_INTERVAL_ROUNDS and not self._fits(self._ends)

    def _fits(self, arms: tuple[Arm, ...]) -> bool:
        lengths = lengths_for(self._guessed_paces(), 0.0, self._workers)
        return self._round <= _MAX_ROUNDS and lengths.round_s(arms) <= self._left_s

    def note_other_load(self, of_ranks_cores: float = 0.0) -> None:
        """Note the load of other processes while `run` measured, and warn of it.

        Args:
            of_ranks_cores: Cores of it used by the other ranks of this host.
        """
        cores = max(0.0, self._other_load.stop() - of_ranks_cores)
        self._ledger.note(
            other_load_cores=cores,
            stolen_share=self._turns.repeats.stolen_share,
            blocks_repeated=self._turns.repeats.repeated,
        )
        seconds = self._clock() - self._started_s
        warning = self._other_load.warning(cores, seconds, of_ranks_cores, is_settled=self._standing.found.settled)
        if warning is not None:
            self._ledger.warn(warning)
