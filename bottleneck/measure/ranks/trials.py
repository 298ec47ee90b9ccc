"""What is asked of a job of many ranks beside the experiments of one.

What sharing gradients costs: steps with and without it, on batches that are on the device already, where the one rank
that others wait for shows too. Which rank's loader holds all: the rank that waits the most gets its batches from a
cache while the others load, and the other way round; in a job whose gradients are shared, the others wait for it
inside of their steps. What loaders take from each other: all at once, against one of them while the others rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from bottleneck.loader import modes
from bottleneck.measure.bench import block_batches
from bottleneck.measure.describe import describe_arm
from bottleneck.measure.explain_errors import job_failures
from bottleneck.measure.ladder import Arm
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.machine import MachineUsage
from bottleneck.measure.ranks.lockstep import Call, LockstepBench
from bottleneck.measure.ranks.used import Used, read_used
from bottleneck.measure.training.training import Training
from bottleneck.results.blocks import Block
from bottleneck.results.names import RAW
from bottleneck.results.rank_trials import RankTrial, TrialName
from bottleneck.results.ranks import Rank

SHARE = 0.3
"""Of the budget."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 8
_LONGEST_BLOCK_S, _SHORTEST_BLOCK_S, _STEPS = 0.8, 0.3, 20
_WORTH_FREEING = 0.02
"""The part of the job's step that a rank has to wait for its loader, for that to be tried without."""
_ALIKE = 0.5
"""Ranks that wait longer than this part of what the one does that waits the most are freed with it."""
_DEVICE, _RAW, _LOADER = Arm(None, "device"), Arm(modes.ALL, "loader"), Arm(modes.ALL, "loader", coupled=False)


class Trials:
    """What one rank measured of what was tried.

    Args:
        bench: Runs the visits in step with the other ranks.
        ledger: Takes the blocks of the ladder's experiments.
        training: Restored at the beginning of each round.
    """

    def __init__(self, bench: LockstepBench, ledger: Ledger, training: Training) -> None:
        self._bench, self._ledger, self._training = bench, ledger, training
        self._blocks: dict[str, list[Block]] = {}
        self._used: dict[str, Used] = {}
        self._machine = MachineUsage(None)
        bench.read_used = lambda: read_used(bench.loader.workers, self._machine)
        self._round = 0

    @property
    def found(self) -> tuple[RankTrial, ...]:
        """The blocks of this rank."""
        rank, nothing = self._bench.group.rank, Used()
        return tuple(
            RankTrial(name, rank, tuple(blocks), used.cpu_s, used.network_bytes)  # type: ignore[arg-type]  # as called
            for name, blocks in self._blocks.items()
            for used in [self._used.get(name, nothing)]
        )

    def follow(self) -> None:
        """Do as the first rank says, until it says no more."""
        while (call := self._bench.hear()) is not None:
            self._visit(call)

    def lead(
        self, ranks: Sequence[Rank], first_round: int, budget_s: float, clock: Callable[[], float]
    ) -> tuple[int, ...]:
        """Try all that is worth it, on all ranks, round by round; return the ranks that were freed.

        Args:
            ranks: As they are known after the rounds.
            first_round: Number of the first round.
            budget_s: Time for it.
            clock: Seconds from any beginning.
        """
        freed = wait_most(ranks)
        calls = list(self._calls(freed))
        until_s, longest_s = clock() + budget_s, 0.0
        for number in range(_MOST_ROUNDS):
            began_s = clock()
            if number >= _FEWEST_ROUNDS and began_s + longest_s > until_s:
                break
            for call in calls if number % 2 else calls[::-1]:
                told = msgspec.structs.replace(call, round=first_round + number)
                self._bench.announce(told)
                self._visit(told)
            longest_s = max(longest_s, clock() - began_s)
        return freed

    def _visit(self, call: Call) -> None:
        if call.round != self._round:
            self._training.begin_round()
            self._round = call.round
        with job_failures(describe_arm(call.arm, self._ledger.ladder)):
            block = self._bench.take_part(call)
        if block is not None and call.trial:
            self._blocks.setdefault(call.trial, []).append(block)
            if not call.arm.coupled:
                self._used[call.trial] = self._used.get(call.trial, Used(0.0, 0.0)) + self._bench.used
        elif block is not None:
            self._ledger.add(call.arm, block)

    def _calls(self, freed: tuple[int, ...]) -> Iterator[Call]:
        bench = self._bench
        if not bench.sharing.reason:
            yield self._call("device", _DEVICE)
            yield self._call("device-unshared", _DEVICE, shares=False)
        if freed or not bench.sharing.reason:
            yield self._call("raw", _RAW)
        if not bench.sharing.reason:
            yield self._call("raw-unshared", _RAW, shares=False)
        if freed:
            others = tuple(rank for rank in range(bench.group.size) if rank not in freed)
            yield self._call("raw-freed", _RAW, ranks=others, others=_DEVICE)
            yield self._call("raw-held", _RAW, ranks=freed, others=_DEVICE)
        yield self._call("loaders", _LOADER)
        yield self._call("loader-alone", _LOADER, ranks=freed[:1] or (0,))

    def _call(self, trial: TrialName, arm: Arm, **changes: Any) -> Call:
        pace_s = self._ledger.seconds_per_batch(arm) or math.inf  # not measured: as short as it can be
        step_s = self._ledger.seconds_per_batch(_DEVICE) or 0.0
        target_s = min(_LONGEST_BLOCK_S, max(_SHORTEST_BLOCK_S, _STEPS * step_s))
        batches = block_batches(arm, pace_s, target_s, self._bench.most_workers)
        return msgspec.structs.replace(self._bench.plan(arm, 0, batches), trial=trial, looks=False, **changes)


def wait_most(ranks: Sequence[Rank]) -> tuple[int, ...]:
    """The rank that waits the longest for its loader, and those that wait about as long, if they are half at most.

    Empty where waiting is no part of a step to speak of.
    """
    waits_s = {rank.rank: rank.wait_s_per_batch or 0.0 for rank in ranks}
    ordered = sorted(ranks, key=lambda rank: waits_s[rank.rank], reverse=True)
    first = next(iter(ordered), None)
    raw_s = next((e.coupled_s_per_batch for e in first.experiments if e.name == RAW), None) if first else None
    if first is None or not raw_s or waits_s[first.rank] <= _WORTH_FREEING * raw_s:
        return ()
    alike = tuple(rank.rank for rank in ordered if waits_s[rank.rank] > _ALIKE * waits_s[first.rank])
    return alike if len(alike) <= len(ranks) / 2 else (first.rank,)
